//! Another machine as an arm: `lowroad netbench serve` runs there, and the client on this one, in its own network.
//! That machine is neither set up nor observed from here.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use datapath::Missing;
use netbench::Token;
use netbench::client::{self, Session};
use netdev::Netlink;
use probes::occupancy::OccupancyProbe;
use testbed::Child;

use super::client::{ClientError, ClientRun};
use super::tool::own_client;
use super::{client_report, line};
use crate::cpus;
use crate::host::{RemoteHost, SCHEME};
use crate::jobs::netbench::load::TrialSpec;
use crate::outcome::Outcome;

/// Another machine whose server takes part in trials.
#[derive(Clone, Debug)]
pub(super) struct RemoteServer(RemoteHost);

impl RemoteServer {
    pub(super) fn new(host: RemoteHost) -> Self {
        Self(host)
    }

    /// Why it cannot be measured from here, after a session with its server.
    pub(super) fn check(&self, name: &str) -> Result<(), Missing> {
        let token = self.0.token_file.as_deref().map(Token::read).transpose();
        let token = token.map_err(|wrong| {
            let remedy = "write into it the first line of the server's token file";
            Missing::new(wrong.to_string(), remedy)
        })?;
        let session = Session::open(self.0.address(), token.as_ref());
        session.map(drop).map_err(|error| {
            let what = match &error {
                // The remedy has the whole command, with its token.
                client::Error::NoServer(at) => format!("no netbench server at {at}"),
                error => error.to_string(),
            };
            Missing::new(what, self.remedy(name, &error))
        })
    }

    fn remedy(&self, name: &str, error: &client::Error) -> String {
        match error {
            client::Error::Unreachable { .. } | client::Error::NoServer(_) => self.serve(),
            client::Error::Target(_) | client::Error::Stranger(_) => {
                format!("write agent = \"{SCHEME}HOST:PORT\" of a server under [host.{name}]")
            }
            client::Error::Version { .. } => "install the same lowroad there".to_owned(),
            client::Error::NoToken(_) => format!("write token-file = FILE under [host.{name}]"),
            client::Error::Refused { .. } => {
                format!(
                    "make the first line of [host.{name}]'s token-file the same as the server's"
                )
            }
            client::Error::Busy { .. } => "try again later".to_owned(),
            _ => "see the output of its server".to_owned(),
        }
    }

    /// The command to run there.
    fn serve(&self) -> String {
        let found = client::resolve(self.0.address()).unwrap_or_default();
        // The one that takes both, where only some of them are.
        let any = match found.iter().any(SocketAddr::is_ipv6) {
            true => "[::]",
            false => "0.0.0.0",
        };
        let port = found.first().map_or(netbench::PORT, SocketAddr::port);
        format!("run there: lowroad netbench serve --listen {any}:{port} --token-file FILE")
    }

    /// Runs one trial. It sets nothing up on this machine.
    pub(super) fn measure(
        &self,
        foreign: &OccupancyProbe,
        spec: &TrialSpec<'_>,
    ) -> Result<Outcome> {
        let folder = testbed::folder()?;
        let load = spec.load;
        let test = load.test().context("a load without a test")?;
        let (target, warmup) = (self.0.address(), load.duration.0 / 10);
        let mut command = own_client(spec.lowroad, target, (test, load), warmup);
        if let Some(token) = &self.0.token_file
            && test.needs_server()
        {
            command.arg("--token-file").arg(token);
        }
        let client_run = ClientRun {
            foreign,
            // A card's interrupts come wherever they do.
            cpus: cpus::all()?,
            own: Vec::new(),
            duration: load.duration.0,
            search: test.searches(),
            errors: folder.path().join("client.stderr"),
        };
        // As in every other arm.
        let [cpu, _] = cpus::ends()?;
        let start =
            |command| -> Result<Child> { Ok(sys::sched::on_cpu(cpu, || Child::start(command))??) };
        let mut outcome = Outcome::default();
        let said = client_run
            .run(command, start, |_| Ok(()), &mut outcome)
            .map_err(|error| match error.downcast::<ClientError>() {
                Ok(failed) => Missing::new(failed.to_string(), self.serve()).into(),
                Err(other) => other,
            })?;
        client_report::read(test, &said, &mut outcome)?;
        let cpus = vec![cpu].into();
        outcome
            .environment
            .insert("host.client.cpus".to_owned(), cpus);
        self.note(&mut outcome)?;
        Ok(outcome)
    }

    /// Notes the server's address, and the device of this machine that leads there.
    fn note(&self, outcome: &mut Outcome) -> Result<()> {
        for (fact, value) in [
            ("host.client.env", "this machine"),
            ("host.server.env", "another machine"),
            ("host.server.agent", self.0.agent.as_str()),
            ("host.server.noise", "not seen"),
        ] {
            outcome.environment.insert(fact.to_owned(), value.into());
        }
        let found = client::resolve(self.0.address())?;
        let mut ways = found.iter().filter_map(|at| device_to(at).ok());
        let link = ways.next().context("no route leads to it")?;
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

    fn at(agent: &str) -> RemoteServer {
        RemoteServer(RemoteHost {
            agent: agent.to_owned(),
            token_file: None,
        })
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
        with_token.0.token_file = Some("/nowhere/token".into());
        let missing = with_token.check("metal").unwrap_err();
        assert!(missing.what.contains("/nowhere/token"), "{missing}");
    }
}
