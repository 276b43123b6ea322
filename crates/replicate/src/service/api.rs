//! The service's methods over the control socket and HTTP.

use control::metrics::Format;
use control::{Error, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Service;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllowDelete {
    part: Option<String>,
}

/// Handles one request.
///
/// # Errors
/// There is no such method, the parameters are wrong, or the method refuses.
pub fn handle(service: &Service, request: &Request) -> Result<Value, Error> {
    match request.method.as_str() {
        "status" => serde_json::to_value(service.status()).map_err(Error::failed),
        "metrics" => Ok(Value::String(service.metrics().encode(Format::Prometheus))),
        "allow-delete" => {
            let AllowDelete { part } = request.params()?;
            let allowed = service.allow_delete(part.as_deref())?;
            Ok(json!({ "allowed": allowed }))
        }
        other => Err(Error::unknown_method(other)),
    }
}
