//! What a build may use: rules that it looks at, which bound its time, and copies of rules, which
//! bound its memory. What it divides with that is decided elsewhere.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "parts of numbers that are far below 2^53"
)]

/// What counting the bits of one list costs beside its rules.
const LIST: usize = 16;

/// What may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Rules looked at.
    pub(crate) work: usize,
    /// Copies that splits make.
    pub(crate) copies: usize,
}

/// What building may still use, and has met.
#[derive(Debug, Default)]
pub(crate) struct Effort {
    left: Allowance,
    /// How much of it is for others than the bucket that is being divided.
    kept: Allowance,
    /// Rules in all leaves after which nothing is divided.
    most: usize,
    /// Rules looked at.
    pub(crate) done: usize,
    /// Rules in all leaves, copies counted.
    pub(crate) written: usize,
    /// Rules in the longest leaf.
    pub(crate) longest: usize,
}

impl Effort {
    pub(crate) fn new(left: Allowance, most: usize) -> Self {
        Self {
            left,
            most,
            ..Self::default()
        }
    }

    /// Whether so many rules of so many lists may be looked at; then that is used up.
    pub(crate) fn afford(&mut self, rules: usize, lists: usize) -> bool {
        let work = rules + lists * LIST;
        let free = self.left.work.saturating_sub(self.kept.work);
        let afforded = work <= free && self.written < self.most;
        if afforded {
            self.spend(work);
        }
        afforded
    }

    /// Uses up what has to be done in any case.
    pub(crate) fn spend(&mut self, work: usize) {
        self.left.work = self.left.work.saturating_sub(work);
        self.done += work;
    }

    /// Whether so many copies may be made; then they are charged. Most come back, so that more than the
    /// bucket's own may be lent for a while: no more than a quarter of all.
    pub(crate) fn copy(&mut self, copies: usize) -> bool {
        let own = self.left.copies.saturating_sub(self.kept.copies);
        let afforded = copies <= own.max(self.left.copies / 4);
        if afforded {
            self.left.copies -= copies;
        }
        afforded
    }

    /// Where a part of a split stands.
    pub(crate) fn account(&self) -> (usize, usize) {
        (self.left.copies, self.written)
    }

    /// What was charged for a part was its rules; what it costs is what its leaves hold since.
    pub(crate) fn settle(&mut self, (copies, written): (usize, usize), rules: usize) {
        let holds = self.written - written;
        self.left.copies = (copies + rules).saturating_sub(holds);
    }
}

/// Divides what a bucket may use among its parts, by the squares of their lengths: what its packets
/// gain goes with the length, and so does their number. What one part leaves is for those after it: the
/// longest is the last.
#[derive(Debug)]
pub(crate) struct Shares {
    kept: Allowance,
    squares: f64,
}

impl Shares {
    pub(crate) fn among(effort: &Effort, lengths: impl Iterator<Item = usize>) -> Self {
        Self {
            kept: effort.kept,
            squares: lengths.map(square).sum(),
        }
    }

    /// Keeps what is not for the next part, which is so long.
    pub(crate) fn next(&mut self, effort: &mut Effort, length: usize) {
        let share = square(length) / self.squares.max(square(length)).max(1.0);
        self.squares -= square(length);
        let keep = |left: usize, kept| left - (left.saturating_sub(kept) as f64 * share) as usize;
        effort.kept = Allowance {
            work: keep(effort.left.work, self.kept.work),
            copies: keep(effort.left.copies, self.kept.copies),
        };
    }

    /// The order in which parts of these lengths come.
    pub(crate) fn order(lengths: impl ExactSizeIterator<Item = usize>) -> Vec<usize> {
        let mut order: Vec<_> = lengths.enumerate().collect();
        order.sort_by_key(|&(_, length)| length);
        order.into_iter().map(|(part, _)| part).collect()
    }

    pub(crate) fn end(self, effort: &mut Effort) {
        effort.kept = self.kept;
    }
}

fn square(length: usize) -> f64 {
    length as f64 * length as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effort() -> Effort {
        let left = Allowance {
            work: 1000,
            copies: 140,
        };
        Effort::new(left, 50)
    }

    #[test]
    fn parts_get_by_squares_and_what_others_left() {
        let mut effort = effort();
        let mut shares = Shares::among(&effort, [1, 3, 0, 2].into_iter());
        shares.next(&mut effort, 1);
        assert!(!effort.afford(72, 0));
        assert!(effort.afford(71, 0));
        // A quarter may be lent.
        assert!(!effort.copy(36));
        shares.next(&mut effort, 3);
        // Nine of the other thirteen parts of 929, and of 140.
        assert!(!effort.afford(644, 0));
        assert!(effort.afford(100, 2));
        assert!(!effort.copy(97));
        assert!(effort.copy(90));
        shares.next(&mut effort, 0);
        assert!(!effort.afford(1, 0));
        assert!(!effort.copy(13));
        shares.next(&mut effort, 2);
        assert!(effort.afford(929 - 132, 0));
        assert!(!effort.afford(1, 0));
        assert!(effort.copy(50));
        shares.end(&mut effort);
        assert_eq!(effort.done, 1000);
    }

    #[test]
    fn what_leaves_do_not_hold_is_free_again() {
        let mut effort = effort();
        assert!(effort.copy(100));
        let account = effort.account();
        effort.written += 30;
        effort.settle(account, 60);
        assert!(!effort.copy(71));
        assert!(effort.copy(70));
    }

    #[test]
    fn nothing_is_divided_when_leaves_hold_enough() {
        let mut effort = effort();
        effort.written = 49;
        assert!(effort.afford(1, 0));
        effort.written = 50;
        assert!(!effort.afford(1, 0));
    }
}
