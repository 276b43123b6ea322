//! The router's methods over the control socket and HTTP: names, parameters, answers.

use std::net::IpAddr;
use std::sync::PoisonError;

use control::{Error, Request};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Service;
use crate::follow::RouteView;
use crate::rules::RuleSet;

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
struct Listed {
    routes: Vec<RouteView>,
    installed: usize,
}

/// A rule in force, and how many packets it decided about.
#[derive(Serialize)]
struct RuleView {
    /// 4 or 6.
    family: u8,
    place: String,
    text: String,
    /// None where the datapath does not count them.
    packets: Option<u64>,
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
            answer(service.follower.with(|follow| {
                let status = follow.status();
                Listed {
                    routes: follow.routes(address, limit),
                    installed: status.ipv4.installed + status.ipv6.installed,
                }
            }))
        }
        "next-hops" => answer(service.follower.with(|follow| follow.next_hops())),
        "rules" => answer(rules(service)),
        "reload" => {
            let reloaded = service.reload();
            answer(reloaded.map_err(|error| Error::bad_request(error.to_string()))?)
        }
        "metrics" => answer(service.metrics()),
        other => Err(Error::unknown_method(other)),
    }
}

fn rules(service: &Service) -> Vec<RuleView> {
    let hits = service.follower.with(|follow| follow.plane().hits());
    let loaded = service.rules.lock().unwrap_or_else(PoisonError::into_inner);
    let set = &loaded.set;
    let of = |family: usize, at: usize| hits.as_ref()?[family].get(at).copied();
    let v4 = set.v4.iter().enumerate();
    let v4 = v4.map(|(at, rule)| view(set, 4, rule.id, of(0, at)));
    let v6 = set.v6.iter().enumerate();
    v4.chain(v6.map(|(at, rule)| view(set, 6, rule.id, of(1, at))))
        .collect()
}

fn view(set: &RuleSet, family: u8, id: u32, packets: Option<u64>) -> RuleView {
    let origin = set.origins.get(id as usize);
    RuleView {
        family,
        place: origin.map_or_else(String::new, |origin| origin.place.to_string()),
        text: origin.map_or_else(String::new, |origin| origin.text.to_string()),
        packets,
    }
}

fn answer(value: impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(value).map_err(Error::failed)
}
