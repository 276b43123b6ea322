//! How long parts of a batch's way took, by the device's own clock.

use std::ops::Range;

use crate::cuda;

/// When the parts of a batch's way began and ended, in nanoseconds by a [`Clock`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Copied to the device; none where nothing is.
    pub there: Option<Range<u64>>,
    /// In their order.
    pub kernels: Vec<Range<u64>>,
    /// Copied back; none where nothing is.
    pub back: Option<Range<u64>>,
}

/// By which lanes of one device are timed, so that what one did is before, after or beside what another one
/// did.
#[derive(Clone, Debug)]
pub struct Clock {
    pub(crate) inner: Clocks,
}

#[derive(Clone, Debug)]
pub(crate) enum Clocks {
    /// The device counts from a time of its own.
    OpenCl,
    Cuda(cuda::Clock),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    There,
    Kernel,
    Back,
}

impl Times {
    pub(crate) fn add(&mut self, part: Part, span: Range<u64>) {
        match part {
            Part::There => self.there = Some(span),
            Part::Kernel => self.kernels.push(span),
            Part::Back => self.back = Some(span),
        }
    }
}
