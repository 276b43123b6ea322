//! How long parts of a batch's way took, by the device's own clock.

use std::ops::Range;

use crate::cuda;

/// When the parts of a batch's way began and ended, in nanoseconds by a [`Clock`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The copy to the device, if there is one.
    pub upload: Option<Range<u64>>,
    /// In their order.
    pub kernels: Vec<Range<u64>>,
    /// The copy back, if there is one.
    pub download: Option<Range<u64>>,
}

/// The clock of the timed lanes of one device. It makes the times of different lanes comparable.
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
    Upload,
    Kernel,
    Download,
}

impl Times {
    pub(crate) fn add(&mut self, part: Part, span: Range<u64>) {
        match part {
            Part::Upload => self.upload = Some(span),
            Part::Kernel => self.kernels.push(span),
            Part::Download => self.download = Some(span),
        }
    }
}
