//! Another machine as an arm: `lowroad netbench serve` runs there, and the client on this one, in its own network.
//! What that machine is like is neither ours to set nor to see.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use datapath::Missing;
use netbench::client::{self, Session};
use netbench::{Test, Token};
use netdev::Netlink;
use probes::foreign::Foreign;
use serde::Deserialize;
use testbed::Child;

use super::asking::{Asking, Failed};
use super::tool::own_client;
use super::{line, own, stated};
use crate::cpus;
use crate::jobs::{Outcome, TrialSpec};

/// What an agent's address begins with.
const SCHEME: &str = "tcp://";

/// A machine as an experiment file names it, under `[host.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Away {
    /// Its server: `tcp://HOST:PORT`.
    pub agent: String,
    /// Whose first line that server wants to be known.
    pub token_file: Option<PathBuf>,
}

impl Away {
    /// What is wrong with it, wherever it is tried.
    pub(crate) fn check_stated(&self) -> Result<(), String> {
        match self.agent.strip_prefix(SCHEME) {
            Some(at) if !at.is_empty() && !at.contains(['/', ' ']) => Ok(()),
            _ => Err(format!(
                "agent = {:?} is no server: write {SCHEME}HOST:PORT",
                self.agent
            )),
        }
    }

    /// Why it cannot be measured from here: its server is asked, and left again.
    pub(super) fn check(&self, name: &str) -> Result<(), Missing> {
        let token = self.token_file.as_deref().map(Token::read).transpose();
        let token = token.map_err(|wrong| {
            let remedy = "write into it the first line of the server's token file";
            Missing::new(wrong.to_string(), remedy)
        })?;
        let session = Session::open(self.target(), token.as_ref());
        session
            .map(drop)
            .map_err(|error| Missing::new(error.to_string(), self.remedy(name, &error)))
    }

    fn target(&self) -> &str {
        self.agent.strip_prefix(SCHEME).unwrap_or(&self.agent)
    }

    fn remedy(&self, name: &str, error: &client::Error) -> String {
        match error {
            client::Error::Unreachable { .. } => self.serve(),
            client::Error::Target(_) | client::Error::Stranger(_) => {
                format!("write agent = \"{SCHEME}HOST:PORT\" of a server under [host.{name}]")
            }
            client::Error::Version { .. } => "install the same lowroad there".to_owned(),
            client::Error::NoToken(_) => format!("write token-file = FILE under [host.{name}]"),
            client::Error::Refused { .. } => {
                format!(
                    "let token-file of [host.{name}] begin with the line that the server's begins with"
                )
            }
            client::Error::Busy { .. } => "try again later".to_owned(),
            _ => "see what its server says".to_owned(),
        }
    }

    /// The command that is to run there.
    fn serve(&self) -> String {
        let found = client::resolve(self.target()).unwrap_or_default();
        // The one that takes both, where only some of them are.
        let any = match found.iter().any(SocketAddr::is_ipv6) {
            true => "[::]",
            false => "0.0.0.0",
        };
        let port = found.first().map_or(netbench::PORT, SocketAddr::port);
        format!("run there: lowroad netbench serve --listen {any}:{port} --token-file FILE")
    }

    /// One trial, of which nothing is set up and nothing is left.
    pub(super) fn measure(&self, foreign: &Foreign, spec: &TrialSpec<'_>) -> Result<Outcome> {
        let folder = testbed::folder()?;
        let load = spec.load;
        let test = stated::test(load).context("a load without a test")?;
        let mut command = own_client(self.target(), test, load, load.duration.0 / 10);
        if let Some(token) = &self.token_file {
            command.arg("--token-file").arg(token);
        }
        let asking = Asking {
            foreign,
            // A card's interrupts come wherever they do.
            cpus: cpus::all()?,
            own: Vec::new(),
            duration: load.duration.0,
            search: test == Test::UdpRate,
            errors: folder.path().join("client.stderr"),
        };
        // As in every other arm.
        let [cpu, _] = cpus::ends()?;
        let start =
            |command| -> Result<Child> { Ok(sys::sched::on_cpu(cpu, || Child::start(command))??) };
        let mut outcome = Outcome::default();
        let said = asking
            .run(command, start, |_| Ok(()), &mut outcome)
            .map_err(|error| match error.downcast::<Failed>() {
                Ok(failed) => Missing::new(failed.to_string(), self.serve()).into(),
                Err(other) => other,
            })?;
        own::read(test, &said, &mut outcome)?;
        let cpus = vec![cpu].into();
        outcome
            .environment
            .insert("host.client.cpus".to_owned(), cpus);
        self.note(&mut outcome)?;
        Ok(outcome)
    }

    /// What there is to know: the server's address, and the device of this machine that leads there.
    fn note(&self, outcome: &mut Outcome) -> Result<()> {
        for (fact, value) in [
            ("host.client.env", "this machine"),
            ("host.server.env", "another machine"),
            ("host.server.agent", self.agent.as_str()),
            ("host.server.noise", "not seen"),
        ] {
            outcome.environment.insert(fact.to_owned(), value.into());
        }
        let found = client::resolve(self.target())?;
        let mut ways = found.iter().filter_map(|at| device_to(at).ok());
        let link = ways.next().context("no way leads to it")?;
        let speed = std::fs::read_to_string(line::speed_of(&link.name));
        line::note(&link, speed.ok().as_deref(), outcome);
        Ok(())
    }
}

fn device_to(at: &SocketAddr) -> Result<netdev::Link, netdev::Error> {
    let mut netlink = Netlink::new()?;
    // A link-local address says it itself.
    let scope = match at {
        SocketAddr::V4(_) => None,
        SocketAddr::V6(at) => Some(at.scope_id()).filter(|scope| *scope != 0),
    };
    let route = netlink.route_to(at.ip(), scope, None)?;
    netlink.link_by_index(route.ifindex)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(agent: &str) -> Away {
        Away {
            agent: agent.to_owned(),
            token_file: None,
        }
    }

    #[test]
    fn an_agent_is_an_address() {
        for agent in [
            "tcp://192.0.2.2:12866",
            "tcp://[2001:db8::2]:7411",
            "tcp://box",
        ] {
            assert_eq!(at(agent).check_stated(), Ok(()));
        }
        for agent in [
            "",
            "tcp://",
            "192.0.2.2:12866",
            "udp://box:1",
            "tcp://box:1/x",
        ] {
            let why = at(agent).check_stated().unwrap_err();
            assert!(why.contains("tcp://HOST:PORT"), "{agent}: {why}");
        }
    }

    #[test]
    fn a_server_that_is_not_there_is_told_with_the_command_that_starts_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let missing = at(&format!("tcp://{address}")).check("metal").unwrap_err();
        assert!(missing.what.contains(&address.to_string()), "{missing}");
        let port = format!("--listen 0.0.0.0:{} ", address.port());
        assert!(missing.remedy.contains(&port), "{}", missing.remedy);
        let missing = at("tcp://[::1]:1").check("metal").unwrap_err();
        assert!(
            missing.remedy.contains("--listen [::]:1 "),
            "{}",
            missing.remedy
        );
        let mut with_token = at(&format!("tcp://{address}"));
        with_token.token_file = Some("/nowhere/token".into());
        let missing = with_token.check("metal").unwrap_err();
        assert!(missing.what.contains("/nowhere/token"), "{missing}");
    }
}
