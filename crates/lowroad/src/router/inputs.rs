//! Which routes and rules a command is about: the arguments that name them, and reading them.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use router::listing;
use router::routes::{self, Imported, PeerChoice};
use router::rules::{self, NoteKind, RuleSet};

use crate::exit::Failure;

#[derive(Debug, Args)]
pub(super) struct Inputs {
    /// Routes: a file, packed or plain, - for standard input, or kernel for what `ip route` lists here
    #[arg(long, value_name = "FILE")]
    rib: Option<PathBuf>,
    /// By default what the content looks like: mrt, pfx2as, ip-route, ip-route-json, bird, frr-json, plain
    #[arg(long, value_name = "FORMAT", requires = "rib")]
    rib_format: Option<routes::Format>,
    /// Of a dump of several peers, whose routes: an address or ASNUMBER [default: by shortest AS path]
    #[arg(long, value_name = "PEER", requires = "rib", value_parser = peer)]
    peer: Option<PeerChoice>,
    /// Of several routing tables, which, as the source names it [default: the usual ones]
    #[arg(long, value_name = "TABLE", requires = "rib")]
    table: Option<String>,
    /// Put this many stand-ins for next hops that the source does not name
    #[arg(long, value_name = "N", requires = "rib", value_parser = clap::value_parser!(u16).range(1..=32767))]
    spread: Option<u16>,
    /// Rules: a file, packed or plain, - for standard input, or kernel for what `nft` lists here
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// By default what the content looks like: classbench, iptables, nft, csv, json
    #[arg(long, value_name = "FORMAT", requires = "rules")]
    rules_format: Option<rules::Format>,
    /// Only these tables of a firewall [default: all]
    #[arg(long, value_name = "TABLE", requires = "rules", value_delimiter = ',')]
    rules_table: Vec<String>,
    /// Which packets the rules are for
    #[arg(long, value_enum, default_value = "forward")]
    hook: Hook,
    /// Leave to the kernel what rules cannot express, instead of refusing it
    #[arg(long, requires = "rules")]
    punt_unsupported: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Hook {
    /// From one device to another
    Forward,
    /// To this host
    Input,
}

/// What was read, with the names it goes by.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) routes: Option<(String, Imported)>,
    pub(super) rules: Option<(String, RuleSet)>,
}

impl Inputs {
    pub(super) fn are_none(&self) -> bool {
        self.rib.is_none() && self.rules.is_none()
    }

    pub(super) fn read(&self) -> Result<Read, Failure> {
        if self.are_none() {
            let what = "name routes by --rib FILE, rules by --rules FILE, or both";
            return Err(Failure::Input(what.to_owned()));
        }
        if self.rib.as_deref() == Some(Path::new("-")) && self.rib == self.rules {
            let what = "standard input is either --rib or --rules, not both";
            return Err(Failure::Input(what.to_owned()));
        }
        let routes = self.rib.as_deref().map(|file| self.routes(file));
        let rules = self.rules.as_deref().map(|file| self.rule_set(file));
        Ok(Read {
            routes: routes.transpose()?,
            rules: rules.transpose()?,
        })
    }

    fn routes(&self, file: &Path) -> Result<(String, Imported), Failure> {
        let options = routes::Options {
            format: self.rib_format,
            peer: self.peer.unwrap_or_default(),
            table: self.table.clone(),
        };
        let imported = match named(file) {
            Named::Kernel => listing::routes(&options),
            Named::Input => {
                routes::read("standard input", io::stdin(), &options).map_err(Into::into)
            }
            Named::File => routes::open(file, &options).map_err(Into::into),
        };
        let mut imported = imported.map_err(failure)?;
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
        let rules = match named(file) {
            Named::Kernel => listing::rules(&options),
            Named::Input => {
                rules::read("standard input", io::stdin(), &options).map_err(Into::into)
            }
            Named::File => rules::open(file, &options).map_err(Into::into),
        };
        let rules = rules.map_err(failure)?;
        let name = name(file);
        if !self.punt_unsupported {
            expressible(&name, &rules)?;
        }
        Ok((name, rules))
    }
}

/// What a file's name stands for.
enum Named {
    Kernel,
    Input,
    File,
}

fn named(file: &Path) -> Named {
    if file == Path::new(listing::NAME) {
        Named::Kernel
    } else if file == Path::new("-") {
        Named::Input
    } else {
        Named::File
    }
}

fn failure(error: listing::Error) -> Failure {
    match error {
        listing::Error::Missing(missing) => Failure::Missing(vec![("kernel".to_owned(), missing)]),
        listing::Error::Failed { .. } => Failure::Failed(anyhow!(error)),
        listing::Error::Input(error) => Failure::Input(error.to_string()),
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
