//! Messages of a stream that are no part of its log. Whoever may publish to the subject can store some: they are
//! passed over, counted and named.

use super::Error;

/// Those that were passed over.
#[derive(Clone, Debug, Default)]
pub struct ForeignMessages {
    pub count: u64,
    /// The last one, and why it is no part of the log.
    pub last: Option<String>,
}

impl ForeignMessages {
    pub(super) fn add(&mut self, error: &Error) {
        self.count += 1;
        // A flood of them is not to be one of the log as well.
        if self.count.is_power_of_two() {
            let count = self.count;
            tracing::warn!("{error} ({count} passed over so far)");
        }
        self.last = Some(error.to_string());
    }
}
