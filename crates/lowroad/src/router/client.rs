//! Requests to a running router, and how its answers are printed.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use control::Client;
use datapath::Detachment;
use router::config::CONTROL;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct ControlSocket {
    /// Control socket of the router
    #[arg(long, value_name = "PATH", default_value = CONTROL)]
    control: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Routes {
    /// List only the route that packets to this address take
    address: Option<IpAddr>,
    /// List at most N routes
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    socket: ControlSocket,
}

impl Routes {
    pub(super) fn run(self, json: bool) -> Result<(), Failure> {
        let request = Request {
            method: "routes",
            params: json!({ "address": self.address, "limit": self.limit }),
            format: routes,
        };
        request.send(self.socket, json)
    }
}

/// A method of the router, and how its answer is printed.
pub(super) struct Request {
    method: &'static str,
    params: Value,
    format: fn(&Value) -> String,
}

impl Request {
    pub(super) fn status() -> Self {
        Self::new("status", status)
    }

    pub(super) fn next_hops() -> Self {
        Self::new("next-hops", next_hops)
    }

    pub(super) fn rules() -> Self {
        Self::new("rules", rules)
    }

    pub(super) fn reload() -> Self {
        Self::new("reload", |answer| format!("{}\n", reloaded(answer)))
    }

    fn new(method: &'static str, format: fn(&Value) -> String) -> Self {
        Self {
            method,
            params: Value::Null,
            format,
        }
    }

    pub(super) fn send(self, socket: ControlSocket, json: bool) -> Result<(), Failure> {
        let mut client = Client::connect(socket.control)?;
        let answer = client.call(self.method, self.params)?;
        if json {
            return print_json(&answer);
        }
        exit::print(&(self.format)(&answer))
    }
}

pub(super) fn print_json(answer: &Value) -> Result<(), Failure> {
    exit::print(&format!("{answer:#}\n"))
}

/// The numbers of routes and rules after a reload.
fn reloaded(answer: &Value) -> String {
    let table = &answer["table"];
    let routes = if table.is_null() {
        String::new()
    } else {
        format!("routes {} + {}  ", table["ipv4"], table["ipv6"])
    };
    format!("{routes}rules {} + {}", answer["ipv4"], answer["ipv6"])
}

/// Routes, next hops, packets, and the state of synchronisation with the kernel.
pub(super) fn status(answer: &Value) -> String {
    let mut text = String::new();
    let routes = &answer["routes"];
    let _ = writeln!(
        text,
        "datapath {}  {}  slowest of {} changes {} us  listings {}  overruns {}",
        word(&answer["datapath"]),
        word(&routes["sync"]),
        routes["event_lag_us"]["count"],
        routes["event_lag_us"]["max"],
        routes["listings"],
        routes["overruns"],
    );
    let fallback = &answer["fallback"];
    if fallback.is_object() {
        let _ = writeln!(
            text,
            "fallback  CPUs decided about {} packets: {}",
            fallback["packets"],
            word(&fallback["why"]),
        );
    }
    for interface in answer["interfaces"].as_array().into_iter().flatten() {
        let state = if interface["attached"] == true {
            "routed"
        } else {
            "not there"
        };
        let _ = writeln!(text, "interface  {}  {state}", word(&interface["name"]));
    }
    for detachment in answer["detachments"].as_array().into_iter().flatten() {
        // An answer of another version is shown without it.
        if let Ok(detachment) = Detachment::deserialize(detachment) {
            let _ = writeln!(text, "{detachment}");
        }
    }
    for family in ["ipv4", "ipv6"] {
        let of = &routes[family];
        let hops = &of["next_hops"];
        let withheld = if of["withheld"] == true {
            "  left to the kernel for want of room"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "{family}{withheld}  prefixes {}  installed {}  unplaced {}  neighbours {}  groups {}  unresolved {}  kernel {}  drop {}",
            of["prefixes"],
            of["installed"],
            of["unplaced"],
            hops["neighbours"],
            hops["groups"],
            hops["unresolved"],
            hops["kernel"],
            hops["drops"],
        );
    }
    policy(&mut text, answer);
    if let Some(file) = answer["table"]["file"].as_str() {
        let (v4, v6) = (&answer["table"]["ipv4"], &answer["table"]["ipv6"]);
        let _ = writeln!(text, "table  {file}  {v4} + {v6}");
    }
    if let Some(file) = answer["rules"]["file"].as_str() {
        let (v4, v6) = (&answer["rules"]["ipv4"], &answer["rules"]["ipv6"]);
        let _ = writeln!(text, "rules  {file}  {v4} + {v6}");
    }
    for packets in answer["packets"].as_array().into_iter().flatten() {
        if packets["packets"] != 0 {
            let end = word(&packets["end"]);
            let _ = writeln!(text, "{:>16}  {end}", packets["packets"].to_string());
        }
    }
    text
}

/// What is left to the kernel and why, and what of its policy is bypassed.
fn policy(text: &mut String, answer: &Value) {
    for of in ["kernel", "bypassed"] {
        for finding in answer["policy"][of].as_array().into_iter().flatten() {
            let to = finding["to"].as_str();
            let to = to.map_or_else(String::new, |to| format!(" -> {to}"));
            let versions = match (&finding["ipv4"], &finding["ipv6"]) {
                (Value::Bool(true), Value::Bool(true)) => "ipv4 ipv6",
                (Value::Bool(true), _) => "ipv4",
                _ => "ipv6",
            };
            let _ = writeln!(
                text,
                "{of}  {}{to}  {versions}  {}: {}",
                word(&finding["from"]),
                word(&finding["check"]),
                word(&finding["reason"]),
            );
        }
    }
    for version in answer["kernel_lacks_rules"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let _ = writeln!(
            text,
            "the kernel takes no {} rules: packets that one may drop are dropped",
            word(version)
        );
    }
}

fn routes(answer: &Value) -> String {
    let mut text = String::new();
    let listed = answer["routes"].as_array().map_or(&[][..], Vec::as_slice);
    for route in listed {
        let (prefix, to) = (word(&route["prefix"]), word(&route["to"]));
        let _ = writeln!(text, "{prefix}  {to}  ({})", route["next_hop"]);
    }
    if listed.is_empty() {
        text.push_str("no route\n");
    }
    text
}

fn next_hops(answer: &Value) -> String {
    let mut text = String::new();
    for hop in answer.as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "ipv{} {:>5}  uses {:>7}  {}  ->  {}",
            hop["family"],
            hop["number"].to_string(),
            hop["uses"].to_string(),
            word(&hop["to"]),
            word(&hop["means"]),
        );
    }
    text
}

fn rules(answer: &Value) -> String {
    let mut text = String::new();
    for rule in answer.as_array().into_iter().flatten() {
        let packets = rule["packets"].as_u64();
        let packets = packets.map_or_else(|| "-".to_owned(), |packets| packets.to_string());
        let place = word(&rule["place"]);
        let _ = writeln!(
            text,
            "{packets:>12}  ipv{}  {place}  {}",
            rule["family"],
            word(&rule["text"])
        );
    }
    text
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
