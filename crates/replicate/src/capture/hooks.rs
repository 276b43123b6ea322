//! Where in the kernel it was seen what happens.

use super::Capture;
use super::event::HOOKS;

/// A write, and a change of an inode's times, may be seen at functions in place of events.
const WRITE: &str = HOOKS[0];
const TIME: &str = HOOKS[7];

impl Capture {
    /// Where the kernel showed what has happened since the last call.
    pub(crate) fn take_hooks(&mut self) -> Vec<&'static str> {
        let seen = std::mem::take(&mut self.hooks);
        let functions = self.programs.functions();
        let names = HOOKS.into_iter().enumerate();
        names
            .filter(|(bit, name)| seen >> bit & 1 == 1 && !name.is_empty())
            .map(|(_, name)| match name {
                WRITE => functions.write.unwrap_or(WRITE),
                TIME if functions.changes() => "current_time",
                name => name,
            })
            .collect()
    }

    /// What kind of file system the tree is on.
    pub(crate) fn file_system(&self) -> &'static str {
        self.deriver.source.format().name()
    }

    /// Whether what a write has put there is copied where it is put.
    pub(crate) fn copies(&self) -> bool {
        self.deriver.source.format().exact() || self.programs.functions().write.is_some()
    }
}
