//! Ships a log to other machines: what every way of doing so shares. A [`Source`] follows the log
//! record by record, a [`Sink`] is the copy of it, and a [`Key`] signs records for ways that others
//! can write to.

mod key;
pub mod nats;
mod sink;
mod source;
pub mod tcp;
mod watch;

pub use key::{Key, KeyError, Signature};
pub use sink::{CopyState, Sink};
pub use source::Source;
pub use watch::Watch;
