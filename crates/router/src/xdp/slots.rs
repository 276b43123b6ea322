//! Places of a map's entries, used again only when no program can look at them any more.

use super::Error;

#[derive(Debug)]
pub(super) struct Slots {
    what: &'static str,
    limit: u32,
    next: u32,
    free: Vec<u32>,
    retired: Vec<u32>,
}

impl Slots {
    pub(super) fn new(what: &'static str, limit: u32) -> Self {
        Self {
            what,
            limit,
            next: 0,
            free: Vec::new(),
            retired: Vec::new(),
        }
    }

    pub(super) fn take(&mut self) -> Result<u32, Error> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        if self.next < self.limit {
            self.next += 1;
            return Ok(self.next - 1);
        }
        if self.retired.is_empty() {
            let (what, limit) = (self.what, self.limit);
            return Err(Error::Full { what, limit });
        }
        super::wait()?;
        self.free.append(&mut self.retired);
        self.take()
    }

    /// Nothing leads there any more.
    pub(super) fn retire(&mut self, slot: u32) {
        self.retired.push(slot);
    }

    /// Nothing ever led there.
    pub(super) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }
}
