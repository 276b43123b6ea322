//! The tables and their one writer.

use std::sync::Arc;
use std::time::Duration;

use lpm::{Fib4, Fib6, Layout4, Layout6, NextHop, Prefix4, Prefix6, Simd};

use super::hops::Hops;
use super::lookup::Lookup;
use super::published::Published;
use super::rules::Lists;
use crate::engine::{Contents, Engine, Function};
use crate::forward::{Family, Forwarding, Plane};
use crate::rules::RuleSet;

/// Which structures and instructions look up; nothing is chosen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub layout4: Layout4,
    pub layout6: Layout6,
    pub simd: Simd,
    /// Time in which shapes of the rules' table are tried; with none, the first is taken.
    pub tuning: Duration,
}

impl Default for Options {
    /// Tables that hold everything, by instructions that every machine has.
    fn default() -> Self {
        Self {
            layout4: Layout4::Mixed,
            layout6: Layout6::Paged,
            simd: Simd::Portable,
            tuning: acl::Options::default().tuning,
        }
    }
}

/// Routes, next hops and rules on this machine's CPUs.
#[derive(Debug)]
pub struct Tables {
    fib4: Fib4,
    fib6: Fib6,
    lists: Published<Lists>,
    hops: Published<Hops>,
    options: Options,
}

/// Why tables could not be had or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Routes(#[from] lpm::Error),
    #[error("rules: {0}")]
    Rules(#[from] acl::Error),
    #[error("this machine has no {}: choose among {}", .0.name(), available())]
    Simd(Simd),
}

fn available() -> String {
    let names: Vec<_> = Simd::available().map(Simd::name).collect();
    names.join(", ")
}

impl Engine for Tables {
    type Options = Options;
    type Processor = Lookup;

    fn setup(contents: Contents, options: &Options) -> Result<Self, Error> {
        if !options.simd.is_available() {
            return Err(Error::Simd(options.simd));
        }
        let fib4 = Fib4::build(contents.v4, options.layout4)?;
        let fib6 = Fib6::build(contents.v6, options.layout6)?;
        let lists = Lists::build(&contents.rules, options.simd, options.tuning)?;
        Ok(Self {
            fib4: fib4.with_simd(options.simd),
            fib6: fib6.with_simd(options.simd),
            lists: Published::new(lists),
            hops: Published::new(Hops::default()),
            options: *options,
        })
    }

    fn processor(&self, function: Function) -> Result<Lookup, Error> {
        Ok(Lookup::new(
            function,
            (self.fib4.reader(), self.fib6.reader()),
            self.lists.follow(),
            self.hops.follow(),
        ))
    }
}

impl Tables {
    /// Bytes of the structures that lookups read: of the routes, and of the rules.
    pub fn bytes(&self) -> (usize, usize) {
        let routes = self.fib4.bytes() + self.fib6.bytes();
        (routes, self.lists.get().bytes())
    }

    /// What makes lookups slow, in words; nothing for ordinary tables.
    pub fn warnings(&self) -> Vec<String> {
        let lists = self.lists.get();
        lists.warnings().map(str::to_owned).collect()
    }

    /// What next hops stand for now.
    pub fn hops(&self) -> Arc<Hops> {
        self.hops.get()
    }
}

impl Plane for Tables {
    type Error = Error;

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        match hop {
            Some(hop) => self.fib4.insert(prefix, hop)?,
            None => self.fib4.remove(prefix),
        };
        Ok(())
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        match hop {
            Some(hop) => self.fib6.insert(prefix, hop)?,
            None => self.fib6.remove(prefix)?,
        };
        Ok(())
    }

    fn next_hop(&mut self, family: Family, hop: NextHop, to: &Forwarding) -> Result<(), Error> {
        self.hops.change(|hops| hops.with(family, hop, to));
        Ok(())
    }

    fn rules(&mut self, rules: &RuleSet) -> Result<(), Error> {
        let lists = Lists::build(rules, self.options.simd, self.options.tuning)?;
        self.lists.change(|_| lists);
        Ok(())
    }
}
