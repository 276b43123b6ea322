//! What BIRD 2's `show route` writes, also with `all` and `table all`.

use std::io::BufRead;

use super::format::{Head, Importer};
use super::table::Builder;
use super::text::{self, AnyPrefix};
use super::{Hop, Target};
use crate::error::{Fault, Place};
use crate::lines::Lines;

pub(super) const IMPORTER: Importer = Importer {
    recognizes: |head| Ok(recognizes(head)),
    read: |content, options, table| read(content, options.table.as_deref(), table),
};

pub(super) fn recognizes(head: &Head<'_>) -> bool {
    let kinds = ["unicast", "blackhole", "unreachable", "prohibited"];
    match head.words.as_slice() {
        ["BIRD", ..] | ["Table", _] => true,
        [prefix, kind, rest, ..] => {
            text::prefix(prefix).is_ok() && kinds.contains(kind) && rest.starts_with('[')
        }
        _ => false,
    }
}

pub(super) fn read(
    content: impl BufRead,
    wanted: Option<&str>,
    table: &mut Builder<'_>,
) -> Result<(), Fault> {
    let mut dump = Dump {
        wanted,
        table,
        taken: true,
        prefix: None,
        route: None,
    };
    let mut lines = Lines::new(content);
    while let Some((number, line)) = lines.next()? {
        dump.line(number, line)
            .map_err(|what| Fault::line(number, what))?;
    }
    dump.close().map_err(|(line, what)| Fault::line(line, what))
}

struct Dump<'a, 'b> {
    wanted: Option<&'a str>,
    table: &'a mut Builder<'b>,
    /// Whether the table that is being listed is wanted.
    taken: bool,
    /// That of the routes that follow.
    prefix: Option<AnyPrefix>,
    route: Option<Route>,
}

struct Route {
    line: u64,
    prefix: AnyPrefix,
    kind: Kind,
    best: bool,
    hops: Vec<Hop>,
}

#[derive(Clone, Copy)]
enum Kind {
    Unicast,
    Gone(fn() -> Target),
}

impl Dump<'_, '_> {
    fn line(&mut self, number: u64, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] | ["BIRD", .., "ready."] | ["Access", "restricted"] => Ok(()),
            ["Table", name] => {
                self.close().map_err(|(_, what)| what)?;
                let name = name.trim_end_matches(':');
                self.taken = match self.wanted {
                    Some(wanted) => name == wanted,
                    None => matches!(name, "master4" | "master6"),
                };
                self.prefix = None;
                Ok(())
            }
            ["via" | "dev", ..] if line.starts_with([' ', '\t']) => self.next_hop(&words),
            [attribute, ..] if line.starts_with('\t') && attribute.contains(':') => Ok(()),
            _ => self.begin(number, line, &words),
        }
    }

    /// A route: `PREFIX kind [protocol time] * (preference)`; the prefix is that of the route
    /// before when it is left blank.
    fn begin(&mut self, number: u64, line: &str, words: &[&str]) -> Result<(), String> {
        self.close().map_err(|(_, what)| what)?;
        let same = line.starts_with(' ');
        let (prefix, words) = match words {
            [first, rest @ ..] if !same => (Some(text::prefix(first)?), rest),
            _ => (self.prefix, words),
        };
        let prefix = prefix.ok_or("a route without a prefix before it")?;
        let kind = match words.first() {
            Some(&"unicast") => Kind::Unicast,
            Some(&"blackhole") => Kind::Gone(|| Target::Blackhole),
            Some(&"unreachable") => Kind::Gone(|| Target::Unreachable),
            Some(&"prohibited") => Kind::Gone(|| Target::Prohibit),
            Some(other) => return Err(format!("{other:?} is no type of a route")),
            None => return Err("a prefix without a route".into()),
        };
        self.prefix = Some(prefix);
        let best = words.contains(&"*");
        self.route = Some(Route {
            line: number,
            prefix,
            kind,
            best,
            hops: Vec::new(),
        });
        Ok(())
    }

    fn next_hop(&mut self, words: &[&str]) -> Result<(), String> {
        let route = self.route.as_mut().ok_or("a next hop before its route")?;
        let mut hop = Hop {
            gateway: None,
            interface: None,
            weight: 1,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("nothing behind {word:?}"))
            };
            match *word {
                "via" => hop.gateway = Some(text::address(value()?)?),
                "on" | "dev" => hop.interface = Some((*value()?).into()),
                "weight" => {
                    let weight = value()?;
                    hop.weight = weight
                        .parse()
                        .map_err(|_| format!("{weight:?} is no weight"))?;
                }
                "onlink" => {}
                other => return Err(format!("{other:?} of a next hop cannot be taken")),
            }
        }
        route.hops.push(hop);
        let memory = route.hops.len() * Hop::BYTES;
        self.table.budget().room(memory)?;
        Ok(())
    }

    /// Takes the route that is complete, or says what is wrong in which line.
    fn close(&mut self) -> Result<(), (u64, String)> {
        let Some(route) = self.route.take() else {
            return Ok(());
        };
        let at = Place::Line(route.line);
        if !self.taken {
            self.table.leave_out("a route of another table", at);
            return Ok(());
        }
        if !route.best {
            self.table
                .leave_out("a route that is not the best of its prefix", at);
            return Ok(());
        }
        let target = match route.kind {
            Kind::Gone(target) => target(),
            Kind::Unicast if route.hops.is_empty() => {
                return Err((route.line, "a unicast route without a next hop".into()));
            }
            Kind::Unicast => Target::Hops(route.hops),
        };
        let added = self.table.route(route.prefix, 0, target, at);
        added.map_err(|exhausted| (route.line, exhausted.into()))
    }
}
