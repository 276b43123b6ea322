//! The relay's methods over the control socket and HTTP: names, parameters, answers.

use std::time::Duration;

use control::metrics::Format;
use control::{Error, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::core::Core;
use crate::spec::{StreamSpec, SubscriberSpec};

/// How long a hand-over may take unless the request says otherwise.
pub const SWITCH_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamParams {
    stream: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OptionalStreamParams {
    stream: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddSubscriberParams {
    stream: String,
    subscriber: SubscriberSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubscriberParams {
    stream: String,
    subscriber: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchParams {
    stream: String,
    datapath: String,
    timeout_ms: Option<u64>,
}

/// Carries out one request.
pub fn handle(core: &Core, request: &Request) -> Result<Value, Error> {
    match request.method.as_str() {
        "stream.add" => core.add_stream(request.params::<StreamSpec>()?).map(done),
        "stream.remove" => {
            let StreamParams { stream } = request.params()?;
            core.remove_stream(&stream).map(done)
        }
        "stream.list" => answer(core.streams()),
        "subscriber.add" => {
            let AddSubscriberParams { stream, subscriber } = request.params()?;
            core.add_subscriber(&stream, subscriber).map(done)
        }
        "subscriber.remove" => {
            let SubscriberParams { stream, subscriber } = request.params()?;
            core.remove_subscriber(&stream, &subscriber).map(done)
        }
        "subscriber.list" => {
            let StreamParams { stream } = request.params()?;
            let mut streams = core.streams().into_iter();
            match streams.find(|known| known.name == stream) {
                Some(found) => answer(found.subscribers),
                None => Err(Error::not_found(format!("no stream \"{stream}\""))),
            }
        }
        "switch" => {
            let SwitchParams {
                stream,
                datapath,
                timeout_ms,
            } = request.params()?;
            let timeout = timeout_ms.map_or(SWITCH_TIMEOUT, Duration::from_millis);
            core.switch(&stream, &datapath, timeout).map(done)
        }
        "reload" => answer(core.reload()?),
        "explain" => {
            let OptionalStreamParams { stream } = request.params()?;
            answer(core.explain(stream.as_deref())?)
        }
        "counters" => answer(core.counters()),
        "metrics" => answer(core.metrics().encode(Format::Prometheus)),
        other => Err(Error::unknown_method(other)),
    }
}

fn done(_: ()) -> Value {
    json!({ "done": true })
}

fn answer(value: impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(Error::failed)
}
