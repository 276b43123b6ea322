//! How kernels are launched.

/// How the kernels of a batch are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LaunchMode {
    /// Each kernel and copy by a call of its own.
    Stream,
    /// All by one call, which was recorded in advance.
    Graph,
    /// Without calls: a persistent kernel polls memory for batches.
    Persistent,
}

impl LaunchMode {
    pub const ALL: [Self; 3] = [Self::Stream, Self::Graph, Self::Persistent];

    /// The name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Graph => "graph",
            Self::Persistent => "persistent",
        }
    }
}
