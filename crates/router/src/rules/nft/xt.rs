//! Matches and targets of iptables, of which a listing has only the names.

use serde_json::Value;

use super::rule::{Reader, translation};

/// Matches of iptables that change nothing, so that others may be left out where they fail.
const PURE: [&str; 20] = [
    "addrtype",
    "ah",
    "conntrack",
    "dscp",
    "esp",
    "icmp",
    "icmp6",
    "iprange",
    "length",
    "mac",
    "mark",
    "multiport",
    "owner",
    "physdev",
    "pkttype",
    "sctp",
    "state",
    "tcp",
    "ttl",
    "udp",
];

impl Reader<'_> {
    /// A match or target of iptables.
    pub(super) fn extension(&mut self, body: &Value) -> Result<bool, String> {
        let word = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
        let name = word("name");
        match (word("type"), name) {
            ("match", "comment") => Ok(true),
            ("match", _) if PURE.contains(&name) => {
                self.doubt(format!("-m {name}"));
                Ok(true)
            }
            ("target", "LOG" | "NFLOG") => {
                self.parsed.lost.push("the log entry");
                Ok(true)
            }
            ("target", "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" | "NETMAP") => {
                Err(translation(name))
            }
            // A listing that does not name it may hide a translation.
            ("match" | "target", _) => {
                self.punt(format!("xt {name}"));
                Ok(false)
            }
            _ => Err(
                "an extension of iptables that nft does not name: read what iptables-save writes"
                    .into(),
            ),
        }
    }
}
