//! The thread that makes a new base of the old one and the rules that came since.
//!
//! Lookups and updates go on meanwhile: it holds the writer's lock only to exchange pointers and to
//! repeat the last few erasures.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::delta::{Changes, Delta};
use super::version::{Base, Version};
use super::{Shared, wait};
use crate::address::Address;
use crate::build::Options;
use crate::error::Error;
use crate::rule::Rule;

/// Maximum number of erasures that are repeated in the new base under the lock.
const MAX_ERASURES_UNDER_LOCK: usize = 64;

pub(super) fn start<A: Address>(shared: Arc<Shared<A>>) -> Result<JoinHandle<()>, Error> {
    let builder = thread::Builder::new().name("acl-merge".into());
    Ok(builder.spawn(move || merger(&shared))?)
}

/// Merges whenever there is enough, until the list is closed. What a merge replaces is freed here,
/// when no lookup needs it: freeing takes longer than a lookup may.
fn merger<A: Address>(shared: &Shared<A>) {
    // Lookups and updates come first where processors are few.
    // 0 is this thread; where that is refused, it is as important as they are.
    let _refused = sys::sched::nice(0, 5);
    let mut retired: Vec<Arc<Version<A>>> = Vec::new();
    loop {
        let mut writer = shared.writer();
        while !writer.merge_requested && !writer.closing {
            writer = wait(&shared.changed, writer);
        }
        if writer.closing {
            return;
        }
        drop(writer);
        // Without memory for a merge the list stays as it is, exact and slower; the next change
        // tries again.
        if let Err(_no_memory) = merge(shared, &mut retired) {
            let mut writer = shared.writer();
            writer.merging = false;
            writer.merge_requested = false;
            drop(writer);
            thread::sleep(Duration::from_millis(10));
        }
        retired.retain(|version| Arc::strong_count(version) > 1);
    }
}

fn merge<A: Address>(shared: &Shared<A>, retired: &mut Vec<Arc<Version<A>>>) -> Result<(), Error> {
    let empty = Changes::new()?;
    // A merge that failed has left a delta frozen, which is merged before another is frozen.
    let mut writer = shared.writer();
    let base = Arc::clone(&writer.version.base);
    let frozen = if let Some(frozen) = &writer.version.frozen {
        Arc::clone(frozen)
    } else {
        let frozen = Arc::clone(&writer.version.active);
        let version = Version {
            base: Arc::clone(&base),
            frozen: Some(Arc::clone(&frozen)),
            active: Arc::clone(empty.delta()),
        };
        writer.frozen = Some(std::mem::replace(&mut writer.active, empty));
        writer.generation += 1;
        writer.erased = 0;
        retired.push(shared.publish(&mut writer, version));
        frozen
    };
    writer.merging = true;
    writer.merge_requested = false;
    writer.erasures.clear();
    let time = writer.domain.epoch();
    drop(writer);

    let (numbers, rules) = survivors(&base, &frozen, time);
    let untimed = Options {
        tuning: Duration::ZERO,
    };
    let merged = Base::build(rules, numbers, untimed)?;
    loop {
        let mut writer = shared.writer();
        let erasures = std::mem::take(&mut writer.erasures);
        let few = erasures.len() <= MAX_ERASURES_UNDER_LOCK;
        if few {
            erasures
                .iter()
                .for_each(|&(number, time)| merged.erase(number, time));
            let version = Version {
                base: Arc::new(merged),
                frozen: None,
                active: Arc::clone(&writer.version.active),
            };
            retired.push(shared.publish(&mut writer, version));
            // Its memory is a retired version's too, so that little is freed here.
            let frozen = writer.frozen.take();
            writer.merging = false;
            writer.merges += 1;
            drop(writer);
            drop(frozen);
            shared.changed.notify_all();
            return Ok(());
        }
        drop(writer);
        erasures
            .iter()
            .for_each(|&(number, time)| merged.erase(number, time));
    }
}

/// The rules that are there after update `time`, in ascending order of number.
fn survivors<A: Address>(base: &Base<A>, delta: &Delta<A>, time: u64) -> (Vec<u32>, Vec<Rule<A>>) {
    let old = (0..).zip(&base.numbers).zip(&base.rules);
    let old = old.filter(|((index, _), _)| base.is_live(*index, time));
    let mut all: Vec<_> = old
        .map(|((_, number), rule)| (*number, rule.clone()))
        .collect();
    let new = delta.links().filter(|link| link.is_live(time));
    all.extend(new.map(|link| (link.number, link.rule.clone())));
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().unzip()
}
