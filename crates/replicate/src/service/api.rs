//! The service's methods over the control socket and HTTP.

use control::metrics::Format;
use control::{Error, Request};
use serde_json::Value;

use super::Service;

/// Carries out one request.
///
/// # Errors
/// No such method.
pub fn handle(service: &Service, request: &Request) -> Result<Value, Error> {
    match request.method.as_str() {
        "status" => serde_json::to_value(service.status()).map_err(Error::failed),
        "metrics" => Ok(Value::String(service.metrics().encode(Format::Prometheus))),
        other => Err(Error::unknown_method(other)),
    }
}
