//! The budget of a build: rules that it looks at, which bound its time, and copies of rules, which bound
//! its memory. The callers decide what they divide with it.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "parts of numbers that are far below 2^53"
)]

/// Work of counting the bits of one list, besides that of its rules.
const LIST: usize = 16;

/// Work and copies that may be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Rules looked at.
    pub(crate) work: usize,
    /// Copies that splits make.
    pub(crate) copies: usize,
}

/// The remaining budget of a build, and counts of what it has done.
#[derive(Debug, Default)]
pub(crate) struct BuildBudget {
    remaining: Allowance,
    /// The part of it that is reserved for buckets other than the one being divided.
    reserved: Allowance,
    /// Once all leaves together hold this many rules, nothing is divided.
    max_written: usize,
    /// Rules looked at.
    pub(crate) work: usize,
    /// Rules in all leaves, copies counted.
    pub(crate) written: usize,
    /// Rules in the longest leaf.
    pub(crate) longest: usize,
}

impl BuildBudget {
    pub(crate) fn new(remaining: Allowance, max_written: usize) -> Self {
        Self {
            remaining,
            max_written,
            ..Self::default()
        }
    }

    /// Spends the work of looking at `rules` rules of `lists` lists, if the budget allows it.
    pub(crate) fn try_spend(&mut self, rules: usize, lists: usize) -> bool {
        let work = rules + lists * LIST;
        let free = self.remaining.work.saturating_sub(self.reserved.work);
        let afforded = work <= free && self.written < self.max_written;
        if afforded {
            self.spend(work);
        }
        afforded
    }

    /// Spends work that cannot be avoided.
    pub(crate) fn spend(&mut self, work: usize) {
        self.remaining.work = self.remaining.work.saturating_sub(work);
        self.work += work;
    }

    /// Charges copies, if the budget allows them. Most are refunded, so up to a quarter of all remaining
    /// copies may be borrowed from other buckets for a while.
    pub(crate) fn try_copy(&mut self, copies: usize) -> bool {
        let own = self.remaining.copies.saturating_sub(self.reserved.copies);
        let afforded = copies <= own.max(self.remaining.copies / 4);
        if afforded {
            self.remaining.copies -= copies;
        }
        afforded
    }

    /// The state before a part of a split, for [`BuildBudget::refund`].
    pub(crate) fn checkpoint(&self) -> (usize, usize) {
        (self.remaining.copies, self.written)
    }

    /// Charges a part for the rules that its leaves hold since the checkpoint, in place of its `rules` rules.
    pub(crate) fn refund(&mut self, (copies, written): (usize, usize), rules: usize) {
        let holds = self.written - written;
        self.remaining.copies = (copies + rules).saturating_sub(holds);
    }
}

/// Divides the budget of a bucket among its parts, by the squares of their lengths: both the number of a
/// part's packets and the gain of each grow with the length. What one part does not use is for the parts
/// after it; the longest part is the last.
#[derive(Debug)]
pub(crate) struct Shares {
    reserved: Allowance,
    squares: f64,
}

impl Shares {
    pub(crate) fn among(budget: &BuildBudget, lengths: impl Iterator<Item = usize>) -> Self {
        Self {
            reserved: budget.reserved,
            squares: lengths.map(square).sum(),
        }
    }

    /// Reserves what is not for the next part, which has `length` rules.
    pub(crate) fn next(&mut self, budget: &mut BuildBudget, length: usize) {
        let share = square(length) / self.squares.max(square(length)).max(1.0);
        self.squares -= square(length);
        let keep = |remaining: usize, reserved| {
            remaining - (remaining.saturating_sub(reserved) as f64 * share) as usize
        };
        budget.reserved = Allowance {
            work: keep(budget.remaining.work, self.reserved.work),
            copies: keep(budget.remaining.copies, self.reserved.copies),
        };
    }

    /// The order in which parts of these lengths come.
    pub(crate) fn order(lengths: impl ExactSizeIterator<Item = usize>) -> Vec<usize> {
        let mut order: Vec<_> = lengths.enumerate().collect();
        order.sort_by_key(|&(_, length)| length);
        order.into_iter().map(|(part, _)| part).collect()
    }

    pub(crate) fn end(self, budget: &mut BuildBudget) {
        budget.reserved = self.reserved;
    }
}

fn square(length: usize) -> f64 {
    length as f64 * length as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> BuildBudget {
        let remaining = Allowance {
            work: 1000,
            copies: 140,
        };
        BuildBudget::new(remaining, 50)
    }

    #[test]
    fn parts_share_by_squares() {
        let mut budget = budget();
        let mut shares = Shares::among(&budget, [1, 3, 0, 2].into_iter());
        shares.next(&mut budget, 1);
        assert!(!budget.try_spend(72, 0));
        assert!(budget.try_spend(71, 0));
        // A quarter may be lent.
        assert!(!budget.try_copy(36));
        shares.next(&mut budget, 3);
        // Nine of the other thirteen parts of 929, and of 140.
        assert!(!budget.try_spend(644, 0));
        assert!(budget.try_spend(100, 2));
        assert!(!budget.try_copy(97));
        assert!(budget.try_copy(90));
        shares.next(&mut budget, 0);
        assert!(!budget.try_spend(1, 0));
        assert!(!budget.try_copy(13));
        shares.next(&mut budget, 2);
        assert!(budget.try_spend(929 - 132, 0));
        assert!(!budget.try_spend(1, 0));
        assert!(budget.try_copy(50));
        shares.end(&mut budget);
        assert_eq!(budget.work, 1000);
    }

    #[test]
    fn unused_copies_are_refunded() {
        let mut budget = budget();
        assert!(budget.try_copy(100));
        let checkpoint = budget.checkpoint();
        budget.written += 30;
        budget.refund(checkpoint, 60);
        assert!(!budget.try_copy(71));
        assert!(budget.try_copy(70));
    }

    #[test]
    fn full_leaves_end_division() {
        let mut budget = budget();
        budget.written = 49;
        assert!(budget.try_spend(1, 0));
        budget.written = 50;
        assert!(!budget.try_spend(1, 0));
    }
}
