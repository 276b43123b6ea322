//! The arguments that name routes and rules, and reading them.

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use router::listing;
use router::routes::{self, PeerChoice, RouteImport};
use router::rules::{self, NoteKind, RuleSet};

use crate::exit::Failure;

#[derive(Debug, Args)]
#[command(next_help_heading = "Routes and rules")]
pub(super) struct Inputs {
    /// Routes: a file, packed or plain, - for standard input, or kernel for what `ip route` lists here
    #[arg(long, value_name = "FILE")]
    rib: Option<PathBuf>,
    #[arg(long, value_name = "FORMAT", requires = "rib", help = formats(routes::Format::ALL))]
    rib_format: Option<routes::Format>,
    /// Use this peer's routes of a dump with several: an address or ASNUMBER [default: by shortest AS path]
    #[arg(long, value_name = "PEER", requires = "rib", value_parser = peer)]
    peer: Option<PeerChoice>,
    /// Use this one of several routing tables, as the source names it [default: the usual ones]
    #[arg(long, value_name = "TABLE", requires = "rib")]
    table: Option<String>,
    /// Use N placeholders for next hops that the source does not name
    #[arg(long, value_name = "N", requires = "rib", value_parser = clap::value_parser!(u16).range(1..=32767))]
    spread: Option<u16>,
    /// Rules: a file, packed or plain, - for standard input, or kernel for what `nft` lists here
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    #[arg(long, value_name = "FORMAT", requires = "rules", help = formats(rules::Format::ALL))]
    rules_format: Option<rules::Format>,
    /// Use only these tables of a firewall [default: all]
    #[arg(long, value_name = "TABLE", requires = "rules", value_delimiter = ',')]
    rules_table: Vec<String>,
    /// Use the rules for these packets
    #[arg(long, value_enum, default_value = "forward")]
    hook: Hook,
    /// Leave packets of rules that cannot be expressed to the kernel, instead of refusing the rules
    #[arg(long, requires = "rules")]
    punt_unsupported: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Hook {
    /// Forwarded packets
    Forward,
    /// Packets to this host
    Input,
}

/// Routes and rules, with the names of their sources.
#[derive(Debug)]
pub(super) struct InputData {
    pub(super) routes: Option<(String, RouteImport)>,
    pub(super) rules: Option<(String, RuleSet)>,
}

impl InputData {
    /// The routes or the rules in a file of any format that is known by its content.
    pub(super) fn open(file: &Path) -> Result<Self, Failure> {
        let name = name(file);
        if rules::recognizes(file)? {
            let rules = rules::open(file, &rules::Options::default())?;
            return Ok(Self {
                routes: None,
                rules: Some((name, rules)),
            });
        }
        let routes = routes::open(file, &routes::Options::default())?;
        Ok(Self {
            routes: Some((name, routes)),
            rules: None,
        })
    }
}

impl Inputs {
    pub(super) fn is_empty(&self) -> bool {
        self.rib.is_none() && self.rules.is_none()
    }

    pub(super) fn read(&self) -> Result<InputData, Failure> {
        if self.is_empty() {
            let what = "name routes by --rib FILE, rules by --rules FILE, or both";
            return Err(Failure::Input(what.to_owned()));
        }
        if self.rib.as_deref() == Some(Path::new("-")) && self.rib == self.rules {
            let what = "standard input is either --rib or --rules, not both";
            return Err(Failure::Input(what.to_owned()));
        }
        let routes = self.rib.as_deref().map(|file| self.routes(file));
        let rules = self.rules.as_deref().map(|file| self.rule_set(file));
        Ok(InputData {
            routes: routes.transpose()?,
            rules: rules.transpose()?,
        })
    }

    fn routes(&self, file: &Path) -> Result<(String, RouteImport), Failure> {
        let options = routes::Options {
            format: self.rib_format,
            peer: self.peer.unwrap_or_default(),
            table: self.table.clone(),
        };
        let imported = match source(file) {
            Source::Kernel => listing::routes(&options),
            Source::Input => {
                routes::read("standard input", io::stdin(), &options).map_err(Into::into)
            }
            Source::File => routes::open(file, &options).map_err(Into::into),
        };
        let mut imported = imported?;
        if let Some(count) = self.spread {
            imported.routes.spread(count);
        }
        Ok((name(file), imported))
    }

    fn rule_set(&self, file: &Path) -> Result<(String, RuleSet), Failure> {
        let options = rules::Options {
            format: self.rules_format,
            hook: match self.hook {
                Hook::Forward => rules::Hook::Forward,
                Hook::Input => rules::Hook::Input,
            },
            tables: self.rules_table.clone(),
        };
        let rules = match source(file) {
            Source::Kernel => listing::rules(&options),
            Source::Input => {
                rules::read("standard input", io::stdin(), &options).map_err(Into::into)
            }
            Source::File => rules::open(file, &options).map_err(Into::into),
        };
        let rules = rules?;
        let name = name(file);
        if !self.punt_unsupported {
            expressible(&name, &rules)?;
        }
        Ok((name, rules))
    }
}

/// The source that a file's name stands for.
enum Source {
    Kernel,
    Input,
    File,
}

fn source(file: &Path) -> Source {
    if file == Path::new(listing::NAME) {
        Source::Kernel
    } else if file == Path::new("-") {
        Source::Input
    } else {
        Source::File
    }
}

fn expressible(name: &str, rules: &RuleSet) -> Result<(), Failure> {
    let punted = |note: &&rules::Note| note.kind == NoteKind::Punted;
    let mut notes = rules.notes.iter().filter(punted);
    let Some(first) = notes.next() else {
        return Ok(());
    };
    let more = match notes.count() {
        0 => String::new(),
        more => format!(" (and {more} more like it)"),
    };
    Err(Failure::Input(format!(
        "{}: no engine can hold this: {}{more}\n  use --punt-unsupported to let the kernel decide such packets, or remove the rule",
        first.place.within(name),
        first.what.trim_start_matches("left to the kernel for "),
    )))
}

fn formats<const N: usize>(all: [impl Display; N]) -> String {
    let names = all.map(|format| format.to_string()).join(", ");
    format!("Format: {names} [default: by content]")
}

fn name(file: &Path) -> String {
    if file == Path::new("-") {
        return "standard input".to_owned();
    }
    file.display().to_string()
}

fn peer(text: &str) -> Result<PeerChoice, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(PeerChoice::Address(address));
    }
    let number = text.strip_prefix("AS").or_else(|| text.strip_prefix("as"));
    let number = number.and_then(|number| number.parse().ok());
    number
        .map(PeerChoice::As)
        .ok_or_else(|| "a peer is an address, or AS and a number as in AS64500".to_owned())
}
