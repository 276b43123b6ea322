//! Asking a router that runs, and how its answers read.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use control::Client;
use router::config::CONTROL;
use serde_json::{Value, json};

use crate::exit::{self, Failure};
use crate::interface::failure;

#[derive(Debug, Args)]
pub(super) struct Socket {
    /// The control socket of the router
    #[arg(long, value_name = "PATH", default_value = CONTROL)]
    control: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct Routes {
    #[command(flatten)]
    socket: Socket,
    /// Only the one that packets to this address take
    address: Option<IpAddr>,
    /// At most so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl Routes {
    pub(super) fn ask(self, json: bool) -> Result<(), Failure> {
        let question = Question {
            method: "routes",
            params: json!({ "address": self.address, "limit": self.limit }),
            reads: routes,
        };
        question.ask(self.socket, json)
    }
}

/// What to ask, and how the answer reads.
pub(super) struct Question {
    method: &'static str,
    params: Value,
    reads: fn(&Value) -> String,
}

impl Question {
    pub(super) fn status() -> Self {
        Self::of("status", status)
    }

    pub(super) fn next_hops() -> Self {
        Self::of("next-hops", next_hops)
    }

    pub(super) fn rules() -> Self {
        Self::of("rules", rules)
    }

    pub(super) fn reload() -> Self {
        Self::of("reload", |answer| format!("{}\n", reloaded(answer)))
    }

    fn of(method: &'static str, reads: fn(&Value) -> String) -> Self {
        Self {
            method,
            params: Value::Null,
            reads,
        }
    }

    pub(super) fn ask(self, socket: Socket, json: bool) -> Result<(), Failure> {
        let mut client = Client::connect(socket.control).map_err(failure)?;
        let answer = client.call(self.method, self.params).map_err(failure)?;
        if json {
            return print_json(&answer);
        }
        exit::print(&(self.reads)(&answer))
    }
}

pub(super) fn print_json(answer: &Value) -> Result<(), Failure> {
    exit::print(&format!("{answer:#}\n"))
}

/// What holds after a reload.
fn reloaded(answer: &Value) -> String {
    let table = &answer["table"];
    let routes = if table.is_null() {
        String::new()
    } else {
        format!("routes {} + {}  ", table["ipv4"], table["ipv6"])
    };
    format!("{routes}rules {} + {}", answer["ipv4"], answer["ipv6"])
}

/// Routes, next hops, packets, and how following goes.
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
    for family in ["ipv4", "ipv6"] {
        let of = &routes[family];
        let hops = &of["next_hops"];
        let _ = writeln!(
            text,
            "{family}  prefixes {}  installed {}  unplaced {}  neighbours {}  groups {}  unresolved {}  kernel {}  drop {}",
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
    if routes["foreign_rules"] != 0 {
        let _ = writeln!(
            text,
            "policy rules that are not followed: {} (see `ip rule`)",
            routes["foreign_rules"]
        );
    }
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
