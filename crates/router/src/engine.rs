//! Packet functions over batches of headers, wherever they are computed: what goes in, what comes
//! out, and what an engine is. How tables are searched is each engine's own affair.

mod counters;
mod decision;
mod headers;
mod worker;

use lpm::Rib;

use crate::enum_names::enum_names;
use crate::forward::Plane;
use crate::rules::RuleSet;

pub use counters::Counters;
pub use decision::{Decision, Verdict};
pub(crate) use headers::Whole;
pub use headers::{Headers, KeyError};
pub use worker::{Stages, Worker};

/// What is decided about each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// The next hop of its destination.
    Lpm,
    /// The action of its first matching rule.
    Acl,
    /// Both, combined by [`Decision::combine`].
    Both,
}

enum_names!(Function or UnknownFunction: Lpm = "lpm", Acl = "acl", Both = "both");

/// No packet function of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no packet function: lpm, acl, both")]
pub struct UnknownFunction(String);

impl Function {
    pub fn routes(self) -> bool {
        self != Self::Acl
    }

    pub fn filters(self) -> bool {
        self != Self::Lpm
    }
}

/// What an engine starts with.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub v4: Rib<u32>,
    pub v6: Rib<u128>,
    pub rules: RuleSet,
}

/// Tables somewhere, ready for lookups: set up once, updated as any [`Plane`] is, and read by
/// processors in as many threads as wanted.
pub trait Engine: Plane + Sized {
    /// What there is to choose.
    type Options;
    type Processor: Processor;

    /// Tables with these contents.
    ///
    /// # Errors
    /// Contents that the chosen tables do not hold, an engine that this machine does not have.
    fn setup(contents: Contents, options: &Self::Options) -> Result<Self, Self::Error>;

    /// Something that decides about packets, for one thread.
    ///
    /// # Errors
    /// No room for another one.
    fn processor(&self, function: Function) -> Result<Self::Processor, Self::Error>;
}

/// Decides about packets, in one thread.
pub trait Processor: Send {
    type Error: std::error::Error + Send + Sync + 'static;

    fn function(&self) -> Function;

    /// Whether it reads frames: see [`Headers::with_frames`].
    fn reads_frames(&self) -> bool {
        false
    }

    /// Lets go of what others wait for, because no batch is likely to come soon.
    ///
    /// # Errors
    /// A device was lost.
    fn idle(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Decides about each header that has a key.
    ///
    /// # Errors
    /// A device was lost; nothing is decided then.
    fn process_batch(
        &mut self,
        headers: &Headers,
        answers: &mut Answers,
    ) -> Result<(), Self::Error>;
}

/// Decisions in the order of the keys, of each family.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    pub v4: Vec<Decision>,
    pub v6: Vec<Decision>,
}
