//! Other machines that take part in an experiment.

use std::path::PathBuf;

use serde::Deserialize;

/// The beginning of an agent's address.
pub(crate) const SCHEME: &str = "tcp://";

/// Another machine as an experiment file names it, under `[host.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RemoteHost {
    /// Its server: `tcp://HOST:PORT`.
    pub agent: String,
    /// The file whose first line is the token that the server asks for.
    pub token_file: Option<PathBuf>,
}

impl RemoteHost {
    /// Whether the address of its agent has the right form; the machine is not asked.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.agent.strip_prefix(SCHEME) {
            Some(at) if !at.is_empty() && !at.contains(['/', ' ']) => Ok(()),
            _ => Err(format!(
                "agent = {:?} is not a server: write {SCHEME}HOST:PORT",
                self.agent
            )),
        }
    }

    /// The address of its agent without the scheme.
    pub(crate) fn address(&self) -> &str {
        self.agent.strip_prefix(SCHEME).unwrap_or(&self.agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_an_address() {
        let host = |agent: &str| RemoteHost {
            agent: agent.to_owned(),
            token_file: None,
        };
        for agent in [
            "tcp://192.0.2.2:12866",
            "tcp://[2001:db8::2]:7411",
            "tcp://box",
        ] {
            assert_eq!(host(agent).check(), Ok(()));
        }
        for agent in [
            "",
            "tcp://",
            "192.0.2.2:12866",
            "udp://box:1",
            "tcp://box:1/x",
        ] {
            let why = host(agent).check().unwrap_err();
            assert!(why.contains("tcp://HOST:PORT"), "{agent}: {why}");
        }
    }
}
