//! Counts messages of a stream that are not part of its log. Everyone who may publish to the
//! subject can store such messages. They are skipped and reported.

use super::Error;

/// The skipped messages.
#[derive(Clone, Debug, Default)]
pub struct ForeignMessages {
    pub count: u64,
    /// The last one, and why it is not part of the log.
    pub last: Option<String>,
}

impl ForeignMessages {
    pub(super) fn add(&mut self, error: &Error) {
        self.count += 1;
        // The warnings become rarer, so that many such messages do not flood the program's log.
        if self.count.is_power_of_two() {
            let count = self.count;
            tracing::warn!("{error} ({count} passed over so far)");
        }
        self.last = Some(error.to_string());
    }
}
