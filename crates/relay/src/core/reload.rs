//! Bringing a running relay to what its configuration file says now. Only what differs is touched; streams and
//! subscribers that were added by requests stay.

use std::collections::BTreeMap;
use std::fmt;

use control::Error;
use serde::{Deserialize, Serialize};

use super::Core;
use crate::config::Config;
use crate::control::SWITCH_TIMEOUT;
use crate::spec::StreamSpec;

/// What a reload has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    /// What could not be changed, and why; the rest of the file holds.
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

/// Carries out what differs between the file as it was and as it is. Removals come first, so that their addresses are
/// free.
pub(super) fn reload(core: &Core, before: &Streams, now: &Streams) -> Changes {
    let mut changes = Changes::default();
    for name in before.keys().filter(|name| !now.contains_key(*name)) {
        let removed = core.remove_stream(name);
        changes.record(name, removed, |changes| &mut changes.removed);
    }
    for (name, stream) in now {
        match before.get(name) {
            Some(before) if same(before, stream) => {}
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
    changes
}

impl Changes {
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

/// Changes a stream in place where that is possible: its subscribers, and its datapath by a hand-over. Other keys need a
/// stream that starts anew.
fn change(core: &Core, before: &StreamSpec, now: &StreamSpec) -> Result<(), Error> {
    let name = &now.name;
    if !same(&stem(before), &stem(now)) {
        core.remove_stream(name)?;
        return core.add_stream(now.clone());
    }
    for gone in &before.subscribers {
        if !now.subscribers.contains(gone) {
            core.remove_subscriber(name, &gone.name)?;
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

/// What a running stream cannot change.
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
