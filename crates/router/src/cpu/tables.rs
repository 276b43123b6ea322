//! The tables and their one writer.

use std::sync::Arc;
use std::time::Duration;

use datapath::{Classify, ErrorClass};
use lpm::{Fib4, Fib6, Layout4, Layout6, NextHop, Prefix4, Prefix6, Simd};
use rcu::Publisher;

use super::hops::Hops;
use super::lookup::Lookup;
use super::rules::Lists;
use crate::engine::{Contents, Engine, Function};
use crate::forward::{Cleanup, Compiler, Family, Forwarding, Plane};
use crate::image::{self, ImageFile};
use crate::rules::{Hits, RuleSet};

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
    lists: Publisher<Lists>,
    hops: Publisher<Hops>,
    options: Options,
}

/// Why tables could not be had or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Routes(#[from] lpm::Error),
    #[error("rules: {0}")]
    Rules(#[from] acl::Error),
    #[error(transparent)]
    Image(#[from] image::Error),
    #[error("this machine has no {}: choose among {}", .0.name(), available())]
    Simd(Simd),
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Routes(lpm::Error::NextHop { .. }) => ErrorClass::Input,
            Self::Image(error) => error.class(),
            Self::Simd(_) => ErrorClass::Missing,
            Self::Routes(_) | Self::Rules(_) => ErrorClass::Failed,
        }
    }
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
        Self::of((fib4, fib6), &contents.rules, options)
    }

    fn processor(&self, function: Function) -> Result<Lookup, Error> {
        Ok(Lookup::new(
            function,
            (self.fib4.reader(), self.fib6.reader()),
            self.lists.snapshot(),
            self.hops.snapshot(),
        ))
    }
}

impl Tables {
    /// As [`Engine::setup`], with the arrays of an image, whose routes are those of `contents`, instead of
    /// arrays made of them; where its entries do not fit the layout they are made all the same.
    ///
    /// # Errors
    /// As `setup`; content that no table has.
    pub fn restore(
        image: &ImageFile,
        contents: Contents,
        options: &Options,
    ) -> Result<Self, Error> {
        if !options.simd.is_available() {
            return Err(Error::Simd(options.simd));
        }
        let narrower = options.layout4 == Layout4::Bytes && image.layout4() != Layout4::Bytes;
        let fib4 = if narrower {
            Fib4::build(contents.v4, options.layout4)?
        } else {
            image.fib4(contents.v4, options.layout4)?
        };
        let fib6 = image.fib6(contents.v6, options.layout6)?;
        Self::of((fib4, fib6), &contents.rules, options)
    }

    fn of((fib4, fib6): (Fib4, Fib6), rules: &RuleSet, options: &Options) -> Result<Self, Error> {
        let lists = Lists::build(rules, options.simd, options.tuning)?;
        Ok(Self {
            fib4: fib4.with_simd(options.simd),
            fib6: fib6.with_simd(options.simd),
            lists: Publisher::new(lists),
            hops: Publisher::new(Hops::default()),
            options: *options,
        })
    }

    /// Bytes of the structures that lookups read: of the routes, and of the rules.
    pub fn bytes(&self) -> (usize, usize) {
        let routes = self.fib4.bytes() + self.fib6.bytes();
        (routes, self.lists.load().bytes())
    }

    /// What makes lookups slow, in words; nothing for ordinary tables.
    pub fn warnings(&self) -> Vec<String> {
        let lists = self.lists.load();
        lists.warnings().map(str::to_owned).collect()
    }

    /// How often each rule in force matched: of IPv4's list, and of IPv6's. Batches that are being decided
    /// about may be counted or not.
    pub fn hits(&self) -> [Hits; 2] {
        self.lists.load().hits()
    }

    /// What next hops stand for now.
    pub fn hops(&self) -> Arc<Hops> {
        self.hops.load()
    }
}

impl Plane for Tables {
    type Error = Error;
    type RuleTables = Lists;

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
        self.hops.update(|hops| hops.with(family, hop, to));
        Ok(())
    }

    fn compiler(&self) -> Compiler<Lists, Error> {
        let Options { simd, tuning, .. } = self.options;
        Box::new(move |rules| Ok(Lists::build(rules, simd, tuning)?))
    }

    fn enforce(&mut self, lists: Lists) -> Result<Cleanup, Error> {
        let before = self.lists.publish(lists);
        Ok(Box::new(move || drop(before)))
    }
}

#[cfg(test)]
mod tests {
    use acl::{Action, Protocol, Rule4};
    use packet::build;

    use super::*;
    use crate::engine::Worker;

    fn rule(protocol: u8, port: u16) -> Rule4 {
        Rule4 {
            protocol: Protocol::exactly(protocol),
            destination_ports: port..=port,
            action: Action::Drop,
            ..Rule4::default()
        }
    }

    #[test]
    fn packets_are_counted_by_rule_whoever_decides_about_them() {
        let rules = RuleSet {
            v4: vec![rule(17, 53), rule(6, 80), rule(17, 54)],
            ..RuleSet::default()
        };
        let contents = Contents {
            rules: rules.clone(),
            ..Contents::default()
        };
        let mut tables = Tables::setup(contents, &Options::default()).unwrap();
        let udp =
            |to: &str| build::udp("192.0.2.1:9".parse().unwrap(), to.parse().unwrap()).frame();
        let mut frames = vec![vec![0; 60]];
        frames.extend((0..100).map(|at| udp(&format!("192.0.2.2:{}", 52 + at % 4))));
        let v6 = build::udp(
            "[2001:db8::1]:9".parse().unwrap(),
            "[2001:db8::2]:53".parse().unwrap(),
        );
        frames.extend((0..50).map(|_| v6.frame()));
        let lookup = tables.processor(Function::Acl).unwrap();
        let mut workers = [lookup.clone(), lookup].map(|lookup| Worker::new(lookup, 32));
        let mut packets = 0;
        for (worker, share) in workers.iter_mut().zip(frames.chunks(80)) {
            for batch in share.chunks(32) {
                let Ok(_) = worker.decide(batch.iter().map(Vec::as_slice));
            }
            let counters = worker.counters();
            packets += counters.packets - counters.unkeyed.iter().sum::<u64>();
        }
        let [v4, v6] = tables.hits();
        assert_eq!((v4.rules.clone(), v4.none), (vec![25, 0, 25], 50));
        assert_eq!((v6, packets), (Hits::default(), 150), "nothing to count");
        assert_eq!(v4.rules.iter().sum::<u64>() + v4.none + 50, packets);
        // Others begin anew, also of threads that have not seen them.
        tables.rules(&rules).unwrap();
        assert_eq!(tables.hits()[0].rules, [0, 0, 0]);
        let Ok(_) = workers[1].decide(frames[..5].iter().map(Vec::as_slice));
        let [v4, _] = tables.hits();
        assert_eq!((v4.rules, v4.none), (vec![1, 0, 1], 2));
    }
}
