//! Read-copy-update: readers look at shared memory without a lock while one writer replaces parts of
//! it. This crate decides when a replaced part is out of every reader's reach; what the parts are and
//! how they are linked is left to its users.
//!
//! There are two ways to be a reader. With a [`Domain`], a reader pins the current epoch for the time
//! of a batch, and what the writer unlinks waits in a [`LimboList`] until all pinned epochs are later.
//! With a [`Publisher`], a reader keeps a [`Snapshot`], a counted reference to one version of a value,
//! and compares a version number to learn of the next one.
//!
//! The needs of the users:
//!
//! | user | guarantee | by |
//! |---|---|---|
//! | `lpm`, groups of /24s and pieces of IPv6 tables | deferred free: an index is used again only after every reader that may hold it has ended its batch | [`Reclaimer::reclaim`] |
//! | `lpm`, when no other memory is left | grace period wait: the same, by waiting for these readers | [`Reclaimer::wait`] |
//! | `lpm`, tables that BPF programs read as well | the same for readers that pin nothing, by a callback that waits for them | [`Reclaimer::set_grace_period`] |
//! | `acl::live`, erased rules in hash chains | deferred unlink: a rule leaves its chain only after every batch answers from an update at which it was gone | [`Guard::epoch`], [`Domain::reached`] |
//! | `acl::live`, the large table and its deltas | a batch pairs an update with a version that contains it; the writer's thread frees the version | [`Snapshot::refresh`], [`Publisher::publish`] |
//! | `router::cpu`, rules | the latest version at the start of a batch | [`Snapshot::refresh`] |
//! | `router::cpu`, next hops | generation compare: a batch of route lookups is repeated if next hops changed meanwhile | [`Snapshot::is_current`], [`Snapshot::with_current`] |
//!
//! A pin costs a reader one load, one store and one fence, and one store at the end of the batch. A
//! snapshot costs one load where nothing has changed, and a lock where something has.
//!
//! The modules name their primitives by `super::sync`. The tests compile the same files once more over
//! those of the model checker loom, which then runs every interleaving of small programs.

#![forbid(unsafe_code)]

mod domain;
mod limbo;
mod publisher;
mod reclaimer;
#[cfg(test)]
mod tests;

pub use domain::{Domain, Guard, Reader};
pub use limbo::LimboList;
pub use publisher::{Publisher, Snapshot};
pub use reclaimer::{GracePeriod, Reclaimer};

mod sync {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
    pub(crate) use std::sync::{Arc, Mutex, PoisonError, RwLock};
    pub(crate) use std::thread::yield_now;
}
