//! The router's methods over the control socket and HTTP: names, parameters, answers.

use std::net::IpAddr;

use control::metrics::Format;
use control::{Error, Request};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Service;
use crate::follow::RouteView;
use crate::rules::{RuleHits, rule_hits};

/// Routes of one answer unless the request says otherwise: a full table has a million.
const ROUTES: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WhichRoutes {
    address: Option<IpAddr>,
    limit: Option<usize>,
}

/// Routes, and how many there are.
#[derive(Serialize)]
struct RouteList {
    routes: Vec<RouteView>,
    installed: usize,
}

/// Carries out one request.
///
/// # Errors
/// No such method, wrong parameters; what became of it.
pub fn handle(service: &Service, request: &Request) -> Result<Value, Error> {
    match request.method.as_str() {
        "status" => answer(service.status()),
        "routes" => {
            let WhichRoutes { address, limit } = request.params()?;
            let limit = limit.unwrap_or(ROUTES);
            answer(service.follower().with(|follow| {
                let status = follow.status();
                RouteList {
                    routes: follow.routes(address, limit),
                    installed: status.ipv4.installed + status.ipv6.installed,
                }
            }))
        }
        "next-hops" => answer(service.follower().with(|follow| follow.next_hops())),
        "rules" => answer(rules(service)),
        "reload" => {
            let reloaded = service.reload();
            answer(reloaded.map_err(|error| Error::bad_request(error.to_string()))?)
        }
        "metrics" => answer(service.metrics().encode(Format::Prometheus)),
        other => Err(Error::unknown_method(other)),
    }
}

fn rules(service: &Service) -> Vec<RuleHits> {
    rule_hits(&service.loaded().set, service.hits().as_ref())
}

fn answer(value: impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(Error::failed)
}
