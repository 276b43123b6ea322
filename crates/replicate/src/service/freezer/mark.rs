//! Decides when to freeze and when to thaw.

/// A high-water mark, with half of it as the low one.
#[derive(Debug)]
pub(super) struct Mark {
    high: u64,
    over: bool,
    /// The freeze took too long. No other is requested until the backlog has been below the low
    /// mark.
    given_up: bool,
}

impl Mark {
    pub(super) fn new(high: u64) -> Self {
        Self {
            high,
            over: false,
            given_up: false,
        }
    }

    /// Whether writers are to be stopped at this backlog.
    pub(super) fn asks(&mut self, waiting: u64) -> bool {
        if waiting <= self.high / 2 {
            (self.over, self.given_up) = (false, false);
        } else if waiting >= self.high {
            self.over = true;
        }
        self.over && !self.given_up
    }

    pub(super) fn give_up(&mut self) {
        self.given_up = self.over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_asks_from_the_high_mark_down_to_the_low_one() {
        let mut mark = Mark::new(100);
        let asked = [0, 99, 100, 51, 99, 50, 99, 130].map(|waiting| mark.asks(waiting));
        assert_eq!(asked, [false, false, true, true, true, false, false, true]);
    }

    #[test]
    fn given_up_it_asks_again_after_the_low_mark() {
        let mut mark = Mark::new(100);
        assert!(mark.asks(200));
        mark.give_up();
        assert!(
            ![200, 51, 100, 50]
                .map(|waiting| mark.asks(waiting))
                .contains(&true)
        );
        assert!(mark.asks(100));
        // There is nothing to give up.
        let mut mark = Mark::new(100);
        mark.give_up();
        assert!(mark.asks(100));
    }
}
