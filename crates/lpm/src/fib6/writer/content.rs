//! The parts of the arrays that are in use.

use std::sync::atomic::Ordering;

use super::Writer;
use crate::fib6::trie::{LINE, PAGE, SLASH20};
use crate::memory::Content;

impl Writer {
    pub(in crate::fib6) fn contents(&self) -> Vec<Content<'_>> {
        let (trie, storage) = (&self.trie, &self.storage);
        let [page_of, pages] = self.pages();
        vec![
            Content::new("short", &trie.short[..]),
            page_of,
            pages,
            Content::new("cells", &trie.cells[..storage.cells.high_water_mark()]),
            Content::new(
                "lines",
                &trie.lines[..storage.lines.high_water_mark() * LINE],
            ),
            Content::new("deep", &trie.deep[..storage.blocks()]),
            Content::new("steps", &trie.steps[..2 * storage.steps.high_water_mark()]),
            Content::new("answers", &trie.answers[..storage.steps.high_water_mark()]),
        ]
    }

    fn pages(&self) -> [Content<'_>; 2] {
        let trie = &self.trie;
        if trie.flat.is_none() {
            let used = &trie.pages[..self.pages * PAGE];
            return [
                Content::new("page_of", &trie.page_of[..]),
                Content::new("pages", used),
            ];
        }
        let mut page_of = vec![0; SLASH20];
        let mut pages = vec![0; PAGE];
        for (slash20, page) in (0..).zip(&mut page_of) {
            if !self.is_touched(slash20) {
                continue;
            }
            let from = slash20 << 12;
            let entry = |slash32| trie.slot(slash32).load(Ordering::Relaxed);
            let entries = (from..=from | 0xfff).map(entry);
            if entries.clone().any(|entry| entry != 0) {
                *page = (pages.len() / PAGE) as u32;
                pages.extend(entries);
            }
        }
        [
            Content::new("page_of", page_of),
            Content::new("pages", pages),
        ]
    }
}
