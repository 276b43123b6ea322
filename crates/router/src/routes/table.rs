//! Routes in memory: targets once each, prefixes in order.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::{FixedState, RandomState};
use lpm::{Address, NextHop, Prefix, Rib};

use super::report::{Duplicates, LeftOut, Report};
use super::text::AnyPrefix;
use super::{Format, RouteImport, Target};
use crate::budget::{Budget, Exhaustion};
use crate::error::{Error, Fault, Place};

/// A prefix and the place of its target among the table's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<A: Address> {
    pub prefix: Prefix<A>,
    pub target: u32,
}

/// Routes of both families, each prefix once, by address and then shorter before longer.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    pub v4: Vec<Route<u32>>,
    pub v6: Vec<Route<u128>>,
    /// What the routes' `target` counts.
    pub targets: Vec<Target>,
}

/// Routes with next-hop numbers.
#[derive(Clone, Debug)]
pub struct NumberedRib<A: Address> {
    pub rib: Rib<A>,
    /// The target, as a place among the table's, of next hop 1, 2, ...: the more routes the lower.
    pub targets: Vec<u32>,
}

impl Routes {
    /// The IPv4 routes by number.
    ///
    /// # Errors
    /// More than 32767 different targets.
    pub fn numbered4(&self) -> Result<NumberedRib<u32>, Error> {
        numbered(&self.v4, self.targets.len())
    }

    /// The IPv6 routes by number.
    ///
    /// # Errors
    /// More than 32767 different targets.
    pub fn numbered6(&self) -> Result<NumberedRib<u128>, Error> {
        numbered(&self.v6, self.targets.len())
    }

    /// Replaces origins and targets not specified by `count` stand-ins: routes of one origin stay
    /// together, the others go by the prefix. The choice is the same in every run.
    pub fn spread(&mut self, count: u16) {
        let mut to = Spread {
            count: u64::from(count.max(1)),
            hash: FixedState::with_seed(0),
            places: HashMap::default(),
        };
        for route in &mut self.v4 {
            to.spread(route, &mut self.targets);
        }
        for route in &mut self.v6 {
            to.spread(route, &mut self.targets);
        }
    }

    /// Number of routes of both families.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

struct Spread {
    count: u64,
    hash: FixedState,
    places: HashMap<u16, u32>,
}

impl Spread {
    fn spread<A: Address>(&mut self, route: &mut Route<A>, targets: &mut Vec<Target>) {
        let hash = match &targets[route.target as usize] {
            Target::Origin(origin) => self.hash.hash_one(origin),
            Target::Unspecified => self.hash.hash_one(route.prefix),
            _ => return,
        };
        let number = u16::try_from(hash % self.count).unwrap_or(0) + 1;
        route.target = *self.places.entry(number).or_insert_with(|| {
            targets.push(Target::StandIn(number));
            count(targets.len() - 1)
        });
    }
}

fn numbered<A: Address>(routes: &[Route<A>], targets: usize) -> Result<NumberedRib<A>, Error> {
    let mut uses = vec![0_usize; targets];
    for route in routes {
        uses[route.target as usize] += 1;
    }
    let mut used: Vec<u32> = (0..count(targets))
        .filter(|at| uses[*at as usize] > 0)
        .collect();
    used.sort_by_key(|at| std::cmp::Reverse(uses[*at as usize]));
    if used.len() > usize::from(NextHop::MAX) {
        return Err(Error::NextHops {
            targets: used.len(),
            limit: NextHop::MAX,
        });
    }
    let mut hops = vec![None; targets];
    for (number, target) in (1..).zip(&used) {
        hops[*target as usize] = NextHop::new(number);
    }
    let numbered = |route: &Route<A>| Some((route.prefix, hops[route.target as usize]?));
    Ok(NumberedRib {
        rib: routes.iter().filter_map(numbered).collect(),
        targets: used,
    })
}

/// Memory of a target: it is in a list and a map, which grow.
const TARGET: usize = 4 * size_of::<Target>() + 64;

/// Routes as they are read.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    budget: &'a Budget,
    format: Format,
    /// Of equal routes the first counts, and not the last.
    first_counts: bool,
    targets: Vec<Target>,
    places: HashMap<Target, u32, RandomState>,
    v4: Vec<Read<u32>>,
    v6: Vec<Read<u128>>,
    left_out: Vec<LeftOut>,
    pub(super) peers: Vec<super::Peer>,
}

#[derive(Clone, Copy, Debug)]
struct Read<A: Address> {
    route: Route<A>,
    metric: u64,
    place: Place,
}

impl<'a> Builder<'a> {
    pub(super) fn new(format: Format, budget: &'a Budget) -> Self {
        Self {
            budget,
            format,
            first_counts: matches!(format, Format::IpRoute | Format::IpRouteJson),
            targets: Vec::new(),
            places: HashMap::default(),
            v4: Vec::new(),
            v6: Vec::new(),
            left_out: Vec::new(),
            peers: Vec::new(),
        }
    }

    pub(super) fn budget(&self) -> &'a Budget {
        self.budget
    }

    /// The place of a target.
    pub(super) fn target(&mut self, target: Target) -> Result<u32, Exhaustion> {
        if let Some(place) = self.places.get(&target) {
            return Ok(*place);
        }
        self.budget.hold(TARGET + 2 * target.bytes())?;
        let place = count(self.targets.len());
        self.targets.push(target.clone());
        self.places.insert(target, place);
        Ok(place)
    }

    /// Adds a route; the smaller its metric, the better.
    pub(super) fn route(
        &mut self,
        prefix: AnyPrefix,
        metric: u64,
        target: Target,
        place: Place,
    ) -> Result<(), Exhaustion> {
        let target = self.target(target)?;
        self.add(prefix, metric, target, place)
    }

    /// As `route`, of a target whose place is known.
    pub(super) fn add(
        &mut self,
        prefix: AnyPrefix,
        metric: u64,
        target: u32,
        place: Place,
    ) -> Result<(), Exhaustion> {
        let bytes = match prefix {
            AnyPrefix::V4(_) => size_of::<Read<u32>>(),
            AnyPrefix::V6(_) => size_of::<Read<u128>>(),
        };
        // A list that grows is in memory twice.
        self.budget.hold(2 * bytes)?;
        match prefix {
            AnyPrefix::V4(prefix) => self.v4.push(Read {
                route: Route { prefix, target },
                metric,
                place,
            }),
            AnyPrefix::V6(prefix) => self.v6.push(Read {
                route: Route { prefix, target },
                metric,
                place,
            }),
        }
        Ok(())
    }

    /// Counts something that is not a route of the table.
    pub(super) fn leave_out(&mut self, why: &str, place: Place) {
        if let Some(known) = self.left_out.iter_mut().find(|known| known.why == why) {
            known.count += 1;
            return;
        }
        self.left_out.push(LeftOut {
            why: why.to_owned(),
            count: 1,
            first: place,
        });
    }

    pub(super) fn finish(self) -> Result<RouteImport, Fault> {
        let read = (self.v4.len() + self.v6.len()) as u64;
        if read == 0 && self.left_out.is_empty() {
            let what = format!("no route in it, read as {}", self.format);
            return Err(Fault::new(Place::File, what));
        }
        let mut duplicates = Duplicates::default();
        let (v4, v6) = (
            resolve(self.v4, self.first_counts, &mut duplicates),
            resolve(self.v6, self.first_counts, &mut duplicates),
        );
        let report = Report {
            format: self.format,
            read,
            duplicates,
            nested: nested(&v4) + nested(&v6),
            left_out: self.left_out,
            peers: self.peers,
        };
        let targets = self.targets;
        let routes = Routes { v4, v6, targets };
        Ok(RouteImport { routes, report })
    }
}

/// One route of each prefix, in order.
fn resolve<A: Address>(
    mut read: Vec<Read<A>>,
    first_counts: bool,
    duplicates: &mut Duplicates,
) -> Vec<Route<A>> {
    read.sort_by_key(|read| read.route.prefix);
    let mut routes: Vec<Route<A>> = Vec::with_capacity(read.len());
    for same in read.chunk_by(|a, b| a.route.prefix == b.route.prefix) {
        let mut best = same[0];
        for next in &same[1..] {
            duplicates.count(&best, next, first_counts);
            let equal = next.metric == best.metric && !first_counts;
            if next.metric < best.metric || equal {
                best = *next;
            }
        }
        routes.push(best.route);
    }
    routes
}

impl Duplicates {
    fn count<A: Address>(&mut self, known: &Read<A>, next: &Read<A>, first_counts: bool) {
        if known.metric != next.metric {
            self.worse += 1;
        } else if known.route.target == next.route.target {
            self.same += 1;
        } else if first_counts {
            self.behind += 1;
        } else {
            self.replaced += 1;
        }
        self.first = Some(self.first.map_or(next.place, |first| first.min(next.place)));
    }
}

fn nested<A: Address>(routes: &[Route<A>]) -> u64 {
    let mut around: Option<Prefix<A>> = None;
    let mut nested = 0;
    for Route { prefix, .. } in routes {
        if around.is_some_and(|around| around.covers(*prefix)) {
            nested += 1;
        } else {
            around = Some(*prefix);
        }
    }
    nested
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("fewer targets than would fill 64 GiB")
}
