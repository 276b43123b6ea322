//! Bringing a running relay to what its configuration file says now. Only what differs is touched; streams and
//! subscribers that were added by requests stay.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use control::{Error, Kind};
use serde::{Deserialize, Serialize};

use super::Core;
use crate::config::Config;
use crate::control::SWITCH_TIMEOUT;
use crate::spec::StreamSpec;

/// The changes made by a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    /// Changes that could not be made, with the reasons. The rest of the file is in force.
    pub refused: Vec<String>,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            added,
            changed,
            removed,
            refused,
        } = self;
        write!(
            f,
            "streams added {}, changed {}, removed {}",
            added.len(),
            changed.len(),
            removed.len()
        )?;
        for reason in refused {
            write!(f, "\n  refused  {reason}")?;
        }
        Ok(())
    }
}

/// The streams of a file, by name.
pub(super) type Streams = BTreeMap<String, StreamSpec>;

pub(super) fn streams(config: &Config) -> Streams {
    let named = |stream: &StreamSpec| (stream.name.clone(), stream.clone());
    config.streams.iter().map(named).collect()
}

/// Carries out what differs between the file as it was and as it is. Streams that go, or have to start anew, are removed
/// first, so that their addresses are free. What is refused counts as not read: the next reload tries it again.
pub(super) fn reload(core: &Core, configured: &mut Streams, now: Streams) -> Changes {
    let mut changes = Changes::default();
    let running: BTreeSet<String> = core.streams().into_iter().map(|one| one.name).collect();
    let mut restarts = BTreeSet::new();
    for (name, before) in configured.iter() {
        let stays = |stream: &StreamSpec| same(&stem(before), &stem(stream));
        if now.get(name).is_some_and(stays) {
            continue;
        }
        let removed = match core.remove_stream(name) {
            // A request has removed it.
            Err(error) if error.kind == Kind::NotFound => Ok(()),
            removed => removed,
        };
        if now.contains_key(name) && removed.is_ok() {
            restarts.insert(name.clone());
        } else {
            changes.record(name, removed, |changes| &mut changes.removed);
        }
    }
    for (name, stream) in now.iter().filter(|(name, _)| !restarts.contains(*name)) {
        match configured.get(name).filter(|_| running.contains(name)) {
            Some(before) if same(before, stream) || changes.refuses(name) => {}
            Some(before) => {
                let changed = change(core, before, stream);
                changes.record(name, changed, |changes| &mut changes.changed);
            }
            None => {
                let added = core.add_stream(stream.clone());
                changes.record(name, added, |changes| &mut changes.added);
            }
        }
    }
    for name in &restarts {
        let added = core.add_stream(now[name].clone());
        changes.record(name, added, |changes| &mut changes.changed);
    }
    let before = std::mem::take(configured).into_iter();
    let (refused, done): (Streams, Streams) =
        now.into_iter().partition(|(name, _)| changes.refuses(name));
    *configured = done;
    // Of those whose change was refused the file as it was still holds: the next one differs from it.
    let changed = |name: &String| refused.contains_key(name) && !restarts.contains(name);
    configured.extend(before.filter(|(name, _)| changed(name)));
    changes
}

impl Changes {
    fn refuses(&self, stream: &str) -> bool {
        let start = format!("stream \"{stream}\": ");
        self.refused.iter().any(|reason| reason.starts_with(&start))
    }

    fn record(
        &mut self,
        stream: &str,
        result: Result<(), Error>,
        list: fn(&mut Self) -> &mut Vec<String>,
    ) {
        match result {
            Ok(()) => list(self).push(stream.to_owned()),
            Err(error) => self.refused.push(format!("stream \"{stream}\": {error}")),
        }
    }
}

/// Changes a stream in place: its subscribers, and its datapath by a hand-over.
fn change(core: &Core, before: &StreamSpec, now: &StreamSpec) -> Result<(), Error> {
    let name = &now.name;
    for gone in &before.subscribers {
        if !now.subscribers.contains(gone) {
            match core.remove_subscriber(name, &gone.name) {
                // Its time was over, or a request has removed it.
                Err(error) if error.kind == Kind::NotFound => {}
                removed => removed?,
            }
        }
    }
    for new in &now.subscribers {
        if !before.subscribers.contains(new) {
            core.add_subscriber(name, new.clone())?;
        }
    }
    if before.datapath != now.datapath {
        core.switch(name, &now.datapath, SWITCH_TIMEOUT)?;
    }
    Ok(())
}

/// The settings that cannot be changed while a stream runs.
fn stem(stream: &StreamSpec) -> StreamSpec {
    StreamSpec {
        datapath: String::new(),
        subscribers: Vec::new(),
        ..stream.clone()
    }
}

/// Whether two descriptions are written alike.
fn same(one: &StreamSpec, other: &StreamSpec) -> bool {
    let text = |stream: &StreamSpec| serde_json::to_value(stream).ok();
    text(one) == text(other)
}
