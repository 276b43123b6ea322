//! How kernels are brought to work on a batch.

/// How the kernels of a batch are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Launching {
    /// Each by a call, beside those that copy.
    Stream,
    /// All of it by one call, which was recorded before.
    Graph,
    /// By none: a kernel stays on the device, and sees in memory that a batch has come.
    Persistent,
}

impl Launching {
    pub const ALL: [Self; 3] = [Self::Stream, Self::Graph, Self::Persistent];

    /// How people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Graph => "graph",
            Self::Persistent => "persistent",
        }
    }
}
