//! Ships a log to other machines. This module has the parts that all transports share. A [`Source`]
//! follows the log record by record, a [`Sink`] writes a copy of it, and a [`Key`] signs records
//! for transports that others can write to.

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
