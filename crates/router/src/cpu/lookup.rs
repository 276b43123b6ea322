//! Looks up one thread's batches.

use std::convert::Infallible;
use std::sync::Arc;

use acl::{Address, Key};
use lpm::{Reader4, Reader6};
use rcu::Snapshot;

use super::hops::Hops;
use super::rules::{Counts, List, Lists, count};
use crate::engine::{Answers, Decision, Function, Headers, Processor};

/// Batches that are looked up again because next hops changed meanwhile, before changes have to wait.
const MAX_RETRIES: usize = 4;

/// One thread's way to look up: it shares the tables, and nothing that it writes.
#[derive(Debug)]
pub struct Lookup {
    function: Function,
    routes: Routes,
    lists: Snapshot<Lists>,
    counts: Arc<Counts>,
    hops: Snapshot<Hops>,
    found: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Routes {
    v4: Reader4,
    v6: Reader6,
    hops4: Vec<u16>,
    hops6: Vec<u16>,
}

impl Lookup {
    pub(super) fn new(
        function: Function,
        (v4, v6): (Reader4, Reader6),
        lists: Snapshot<Lists>,
        hops: Snapshot<Hops>,
    ) -> Self {
        Self {
            function,
            routes: Routes {
                v4,
                v6,
                hops4: Vec::new(),
                hops6: Vec::new(),
            },
            counts: counts(function, lists.get()),
            lists,
            hops,
            found: Vec::new(),
        }
    }

    /// What the next hops of the last batch stood for when it was looked up.
    pub fn hops(&self) -> &Hops {
        self.hops.get()
    }

    /// Has others look up next hops by number, again where what the numbers stand for changed meanwhile: rules
    /// that matched are then counted once more.
    pub(crate) fn while_hops_hold<E>(
        &mut self,
        mut look_up: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        for _ in 0..MAX_RETRIES {
            self.hops.refresh();
            look_up()?;
            if self.hops.is_current() {
                return Ok(());
            }
        }
        self.hops.with_current(|_| look_up())
    }

    /// Next hops by number, and what these numbers stood for at the same time.
    fn route(&mut self, headers: &Headers) {
        for _ in 0..MAX_RETRIES {
            self.hops.refresh();
            self.routes.look_up(headers);
            if self.hops.is_current() {
                return;
            }
        }
        let routes = &mut self.routes;
        self.hops.with_current(|_| routes.look_up(headers));
    }
}

/// For another thread, which counts by itself.
impl Clone for Lookup {
    fn clone(&self) -> Self {
        Self {
            function: self.function,
            routes: self.routes.clone(),
            lists: self.lists.clone(),
            counts: counts(self.function, self.lists.get()),
            hops: self.hops.clone(),
            found: Vec::new(),
        }
    }
}

/// What a thread counts these rules by.
fn counts(function: Function, lists: &Lists) -> Arc<Counts> {
    if function.filters() {
        lists.count()
    } else {
        Arc::default()
    }
}

impl Processor for Lookup {
    type Error = Infallible;

    fn function(&self) -> Function {
        self.function
    }

    fn process_batch(
        &mut self,
        headers: &Headers,
        answers: &mut Answers,
    ) -> Result<(), Infallible> {
        if self.function.routes() {
            self.route(headers);
        }
        if !self.function.filters() {
            let routed = |hop: &u16| Decision::combine(acl::Action::Accept, *hop);
            fill(&mut answers.v4, self.routes.hops4.iter().map(routed));
            fill(&mut answers.v6, self.routes.hops6.iter().map(routed));
            return Ok(());
        }
        if self.lists.refresh() {
            self.counts = counts(self.function, self.lists.get());
        }
        let lists = self.lists.get();
        let found = &mut self.found;
        let (hops4, hops6) = (&self.routes.hops4, &self.routes.hops6);
        filter(&lists.v4, &headers.keys4, found, hops4, &mut answers.v4);
        count(&self.counts.v4, found);
        filter(&lists.v6, &headers.keys6, found, hops6, &mut answers.v6);
        count(&self.counts.v6, found);
        Ok(())
    }
}

impl Routes {
    fn look_up(&mut self, headers: &Headers) {
        self.hops4.resize(headers.destinations4.len(), 0);
        self.v4
            .lookup_batch_be(&headers.destinations4, &mut self.hops4);
        self.hops6.resize(headers.destinations6.len(), 0);
        self.v6
            .lookup_batch(&headers.destinations6, &mut self.hops6);
    }
}

/// Decides by rules, and by next hops where there are any.
fn filter<A: Address>(
    list: &List<A>,
    keys: &[Key<A>],
    found: &mut Vec<u32>,
    hops: &[u16],
    answers: &mut Vec<Decision>,
) {
    found.resize(keys.len(), 0);
    list.classify(keys, found);
    if hops.len() == keys.len() {
        let both = found.iter().zip(hops);
        fill(
            answers,
            both.map(|(rule, hop)| Decision::combine(list.action(*rule), *hop)),
        );
    } else {
        fill(
            answers,
            found
                .iter()
                .map(|rule| Decision::filtered(list.action(*rule))),
        );
    }
}

fn fill(answers: &mut Vec<Decision>, decisions: impl ExactSizeIterator<Item = Decision>) {
    answers.clear();
    answers.extend(decisions);
}
