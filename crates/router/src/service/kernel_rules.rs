//! The rules in the kernel, for the packets that a data plane leaves to it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use acl::Action;
use netdev::Netlink;

use crate::kernel::{Filter, Lists};
use crate::rules::{Hits, RuleSet};

/// Dropping it takes the rules out of the kernel.
#[derive(Debug, Default)]
pub(super) struct KernelRules(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    filter: Filter,
    set: RuleSet,
    /// The devices whose packets meet the rules.
    names: Vec<String>,
    sole_filter: [bool; 2],
}

impl KernelRules {
    /// Has the kernel filter what comes by these devices and is forwarded. Returns the IP versions of which it lacks a
    /// rule that drops packets, because it takes none.
    pub(super) fn enforce(&self, set: &RuleSet, interfaces: &[String]) -> [bool; 2] {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.set = set.clone();
        state.names = names(interfaces);
        state.enforce()
    }

    /// As `enforce` with the rules in force, where other devices have become the kernel's names for these; none where
    /// nothing has changed.
    pub(super) fn follow(&self, interfaces: &[String]) -> Option<[bool; 2]> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names = names(interfaces);
        if names == state.names {
            return None;
        }
        state.names = names;
        Some(state.enforce())
    }

    /// Of which IP versions the kernel lacks rules.
    pub(super) fn sole_filter(&self) -> [bool; 2] {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .sole_filter
    }

    /// Adds packets that the kernel dropped by a rule. Those that it accepted were counted before they were left to it, or
    /// are forwarded by no rule of a data plane.
    pub(super) fn add_to(&self, hits: &mut [Hits; 2]) {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(counted) = state.filter.hits() else {
            return;
        };
        let v4 = state.set.v4.iter().map(|rule| rule.action);
        let v6 = state.set.v6.iter().map(|rule| rule.action);
        let actions: [Vec<Action>; 2] = [v4.collect(), v6.collect()];
        for ((hits, mut counted), actions) in hits.iter_mut().zip(counted).zip(actions) {
            counted.none = 0;
            for (packets, action) in counted.rules.iter_mut().zip(actions) {
                *packets *= u64::from(action == Action::Drop);
            }
            hits.merge(&counted);
        }
    }
}

impl State {
    fn enforce(&mut self) -> [bool; 2] {
        let drops = [
            self.set.v4.iter().any(|rule| rule.action == Action::Drop),
            self.set.v6.iter().any(|rule| rule.action == Action::Drop),
        ];
        let lists = Lists::of(&self.set, &self.names);
        self.sole_filter = match self.filter.enforce(&lists) {
            Ok(()) => [false; 2],
            Err(error) => {
                if drops != [false; 2] {
                    tracing::warn!(
                        "the kernel takes no rules: {error}; packets that a rule may drop are dropped where the datapath cannot ask the rules"
                    );
                }
                drops
            }
        };
        self.sole_filter
    }
}

/// The names that the kernel knows the packets of these devices by when it forwards them: those of a port are its bridge's,
/// bond's or VRF's.
fn names(interfaces: &[String]) -> Vec<String> {
    let mut names: BTreeSet<String> = interfaces.iter().cloned().collect();
    let links = Netlink::new().and_then(|mut netlink| netlink.links());
    // Devices that cannot be asked for have no other names.
    let links = links.unwrap_or_default();
    loop {
        let ports = links.iter().filter(|link| names.contains(&link.name));
        let controllers: Vec<u32> = ports.filter_map(|link| link.controller).collect();
        let above = links
            .iter()
            .filter(|link| controllers.contains(&link.index));
        let before = names.len();
        names.extend(above.map(|link| link.name.clone()));
        if names.len() == before {
            return names.into_iter().collect();
        }
    }
}
