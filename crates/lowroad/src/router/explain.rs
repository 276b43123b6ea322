//! `lowroad router explain`: what becomes of a packet, and why.

use anyhow::anyhow;
use clap::Args;
use router::check::{self, Checked};
use router::explain::{self, Explanation, Filtered, Packet, RouteFound, RuleShown, Verdict};
use serde_json::{Value, json};

use super::given::{Given, failure};
use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    given: Given,
    /// The packet: '10.0.0.1:5000 -> 192.0.2.7:80/udp', '[2001:db8::1]:5000 -> [2001:db8::2]:80/tcp'
    #[arg(last = false)]
    packet: Option<String>,
}

impl Explain {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let _ = (&self.given, &self.packet, json);
        Ok(())
    }
}
