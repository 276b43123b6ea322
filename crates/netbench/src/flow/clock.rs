//! The times of a client's transactions: each counts from when it was sent, or should have been.

use std::io;
use std::time::{Duration, Instant};

use super::Counter;
use crate::outcome::Times;
use crate::pace::Pace;
use crate::socket::timed_out;
use crate::spec::Spec;

/// A transaction without an answer for this long is lost, unless answers on the path take more than half of it.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// No answer is waited for longer than this.
pub(crate) const MAX_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A transaction under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transaction {
    /// When it began, or should have.
    pub(crate) begin: Instant,
    /// Whether the window was open then: only then its time counts.
    counts: bool,
}

/// Begins the transactions of a flow at their times, and records how long each took.
#[derive(Debug)]
pub(crate) struct Clock<'a> {
    pace: Option<Pace>,
    counter: Counter<'a>,
    times: Times,
    /// The longest time of a transaction so far, also before the window.
    longest: Duration,
    /// When the transaction began that is neither complete nor lost yet.
    under_way: Option<Instant>,
}

impl<'a> Clock<'a> {
    pub(crate) fn new(counter: Counter<'a>) -> Self {
        Self {
            pace: None,
            counter,
            times: Times::default(),
            longest: Duration::ZERO,
            under_way: None,
        }
    }

    /// Starts the schedule of an open loop, once the flow has reached its other end.
    pub(crate) fn start(&mut self, spec: &Spec, flow: u16) {
        self.pace = spec.rate.map(|rate| Pace::new(rate, flow, spec.flows));
    }

    /// When the next transaction of an open loop is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.pace.as_ref().and_then(Pace::due)
    }

    /// Begins the transaction that is due, without waiting for those before it.
    pub(crate) fn begin_due(&mut self) -> Option<Transaction> {
        let due = self.due()?;
        if let Some(pace) = &mut self.pace {
            pace.advance();
        }
        self.times.sent += 1;
        let counts = self.counter.is_window_open();
        if counts {
            self.times.record_lateness(due.elapsed());
        }
        Some(Transaction { begin: due, counts })
    }

    /// The time after which an answer that has not come is lost: twice the longest time of one that has.
    pub(crate) fn answer_timeout(&self) -> Duration {
        (self.longest * 2).clamp(ANSWER_TIMEOUT, MAX_ANSWER_TIMEOUT)
    }

    /// Records how late this end began a message.
    pub(crate) fn record_lateness(&mut self, by: Duration) {
        if self.counter.is_window_open() {
            self.times.record_lateness(by);
        }
    }

    /// Waits until the next transaction is due; none once the test has stopped.
    pub(crate) fn begin(&mut self) -> Option<Transaction> {
        let transaction = self.wait();
        self.under_way = transaction.map(|transaction| transaction.begin);
        self.times.sent += u64::from(transaction.is_some());
        transaction
    }

    fn wait(&mut self) -> Option<Transaction> {
        let totals = self.counter;
        if totals.is_stopped() {
            return None;
        }
        let Some(pace) = &mut self.pace else {
            return Some(Transaction {
                begin: Instant::now(),
                counts: totals.is_window_open(),
            });
        };
        let free = Instant::now();
        let due = pace.wait(|| totals.is_stopped())?;
        let counts = totals.is_window_open();
        if counts {
            // The wait for the transaction before is part of this one's time. Only a later start is this end's delay.
            self.times.record_lateness(due.max(free).elapsed());
        } else if let Some((_, closed)) = totals.window() {
            if due < closed {
                self.times.record_unsent(closed - due, 1);
            }
            return None;
        }
        Some(Transaction { begin: due, counts })
    }

    /// The answer has come, with this number of bytes.
    pub(crate) fn complete(&mut self, transaction: Transaction, bytes: usize) {
        let took = transaction.begin.elapsed();
        self.longest = self.longest.max(took);
        self.under_way = None;
        self.counter.count(bytes);
        self.counter.add_latency(took);
        if transaction.counts {
            self.times.record(took);
        }
    }

    /// No answer has come. A transaction that began before the window counts if the flow waited for it within the
    /// window, because the window was empty meanwhile.
    pub(crate) fn lose(&mut self, transaction: Transaction) {
        self.under_way = None;
        if self.counter.window_was_open_since(transaction.begin) {
            self.counter.count_lost();
        }
    }

    /// The test has ended before an answer came. It counts as in [`Self::lose`].
    pub(crate) fn cut_off(&mut self, transaction: Transaction) {
        self.under_way = None;
        if self.counter.window_was_open_since(transaction.begin) {
            self.settle(transaction);
        }
    }

    /// The test has ended before an answer came to a transaction that others have followed. It counts if it began in
    /// the window.
    pub(crate) fn cut_off_counted(&mut self, transaction: Transaction) {
        if transaction.counts {
            self.settle(transaction);
        }
    }

    /// A transaction that has waited for as long as an answer may take is lost. A younger one took at least until now.
    fn settle(&mut self, transaction: Transaction) {
        let waited = transaction.begin.elapsed();
        match waited >= self.answer_timeout() {
            true => self.counter.count_lost(),
            false => self.times.record_unfinished(waited),
        }
    }

    /// The test has ended before the answer to this one of several came, which cannot be lost.
    pub(crate) fn give_up(&mut self, transaction: Transaction) {
        if transaction.counts {
            self.times.record_unfinished(transaction.begin.elapsed());
        }
    }

    /// Ends the flow, perhaps with a transaction under way. If this end gave it up, it took at least until now, and
    /// counts where a lost one would. If the other end broke the connection, the time does not describe the path.
    pub(crate) fn end(&mut self, ended: &io::Result<()>) {
        let given_up = self.counter.is_aborted() || ended.as_ref().is_err_and(timed_out);
        if let Some(begin) = self.under_way.take()
            && given_up
            && self.counter.window_was_open_since(begin)
        {
            self.times.record_unfinished(begin.elapsed());
        }
    }

    /// The times, once the window is closed. A transaction that was due in the window and did not begin took at least
    /// until the window closed.
    pub(crate) fn times(mut self) -> Times {
        if let (Some(pace), Some((opened, closed))) = (self.pace, self.counter.window()) {
            self.times.record_all_unsent(&pace, opened, closed);
        }
        self.times
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::thread;

    use super::*;
    use crate::flow::Totals;
    use crate::test::Test;

    fn totals() -> Totals {
        Totals::new(&Spec::new(Test::TcpRr, Duration::from_secs(1)))
    }

    fn paced(rate: f64) -> Spec {
        Spec {
            rate: Some(rate),
            ..Spec::new(Test::TcpRr, Duration::from_secs(1))
        }
    }

    #[test]
    fn unsent_transactions_age_until_window_closes() {
        let totals = totals();
        let window = totals.open_window();
        let mut clock = Clock::new(totals.counter(0));
        clock.start(&paced(1000.0), 0);
        let begun = clock.begin().unwrap();
        // The path stands still until the end: some ten more were due meanwhile.
        thread::sleep(Duration::from_millis(10));
        totals.close_window(&window, 1);
        clock.complete(begun, 1);
        totals.stop();
        assert!(clock.begin().is_none());
        let times = clock.times();
        assert!(times.unsent >= 9, "{times:?}");
        assert_eq!(
            (times.latency.count(), times.bounds.count()),
            (1, times.unsent)
        );
        // The oldest has waited all the while but for its interval.
        assert!(times.bounds.max() >= 8_000_000, "{times:?}");
        assert_eq!(times.late.unwrap().count(), 1);
    }

    #[test]
    fn wait_for_earlier_transaction_is_not_lateness() {
        let totals = totals();
        totals.open_window();
        let mut clock = Clock::new(totals.counter(0));
        clock.start(&paced(1e6), 0);
        thread::sleep(Duration::from_millis(50));
        let first = clock.begin().unwrap();
        clock.complete(first, 1);
        let times = clock.times();
        assert!(first.counts && times.latency.min() >= 50_000_000);
        assert!(times.late.unwrap().max() < times.latency.min());
        // The window is still open.
        assert_eq!(times.unsent, 0);
    }

    #[test]
    fn closed_loop_leaves_nothing_unsent() {
        let totals = totals();
        let window = totals.open_window();
        let mut clock = Clock::new(totals.counter(0));
        clock.start(&Spec::new(Test::TcpRr, Duration::from_secs(1)), 0);
        let begun = clock.begin().unwrap();
        totals.close_window(&window, 1);
        clock.complete(begun, 1);
        let times = clock.times();
        assert_eq!((times.latency.count(), times.unsent), (1, 0));
        assert!(times.late.is_none());
    }

    /// The times of a clock whose flow ends during a transaction, with this error.
    fn end_early(totals: &Totals, mut clock: Clock<'_>, ended: io::ErrorKind) -> Times {
        totals.stop();
        clock.end(&Err(ended.into()));
        clock.times()
    }

    #[test]
    fn unfinished_transaction_counts_its_wait() {
        let closed = Spec::new(Test::TcpRr, Duration::from_secs(1));
        let open = paced(1e-3);
        for (spec, measured) in [(&closed, true), (&open, true), (&closed, false)] {
            let totals = totals();
            let mut clock = Clock::new(totals.counter(0));
            clock.start(spec, 0);
            // One that began before the window has kept it empty.
            let window = measured.then(|| totals.open_window());
            clock.begin().unwrap();
            let window = window.unwrap_or_else(|| totals.open_window());
            thread::sleep(Duration::from_millis(5));
            totals.close_window(&window, 1);
            totals.abort();
            let times = end_early(&totals, clock, io::ErrorKind::UnexpectedEof);
            let counted = (times.unfinished, times.unsent, times.bounds.count());
            assert_eq!(counted, (1, 0, 1), "{times:?}");
            assert!(times.bounds.max() >= 5_000_000, "{times:?}");
            assert_eq!(times.latency.count(), 0);
        }
        // So did what has run out of its own time.
        let totals = totals();
        totals.open_window();
        let mut clock = Clock::new(totals.counter(0));
        clock.begin().unwrap();
        let times = end_early(&totals, clock, io::ErrorKind::WouldBlock);
        assert_eq!((times.unfinished, times.bounds.count()), (1, 1));
    }

    #[test]
    fn complete_or_broken_transactions_are_not_unfinished() {
        let totals = totals();
        let window = totals.open_window();
        let begun = || {
            let mut clock = Clock::new(totals.counter(0));
            let begun = clock.begin().unwrap();
            (clock, begun)
        };
        // The server is gone: the time until then does not describe the path.
        let (broken, _) = begun();
        // The last one of a flow is done after the window.
        let (mut last, first) = begun();
        totals.close_window(&window, 1);
        last.complete(first, 1);
        // And this one has not begun in it.
        let (after, _) = begun();
        let unfinished = |clock, count| {
            let times = end_early(&totals, clock, io::ErrorKind::UnexpectedEof);
            assert_eq!((times.unfinished, times.latency.count()), (0, count));
        };
        unfinished(broken, 0);
        totals.abort();
        unfinished(last, 1);
        unfinished(after, 0);
    }

    #[test]
    fn young_request_is_unfinished_and_old_one_lost() {
        let totals = totals();
        totals.open_window();
        let mut clock = Clock::new(totals.counter(0));
        let begun = |ago| Transaction {
            begin: Instant::now().checked_sub(ago).unwrap(),
            counts: true,
        };
        let counts = |clock: &Clock<'_>| (totals.lost(), clock.times.unfinished);
        let second = Duration::from_secs(1);
        // A path of which nothing is known answers within a second.
        clock.cut_off_counted(begun(second * 2));
        clock.cut_off_counted(begun(Duration::ZERO));
        assert_eq!(counts(&clock), (1, 1));
        // One that takes three seconds may take six, and none takes more than ten.
        clock.complete(begun(second * 3), 1);
        clock.cut_off_counted(begun(second * 5));
        clock.cut_off_counted(begun(second * 7));
        assert_eq!(counts(&clock), (2, 2));
        assert!(clock.times.bounds.max() >= 5_000_000_000);
        clock.complete(begun(second * 100), 1);
        assert_eq!(clock.answer_timeout(), MAX_ANSWER_TIMEOUT);
    }

    #[test]
    fn loss_counts_if_wait_overlaps_window() {
        let totals = totals();
        let mut clock = Clock::new(totals.counter(0));
        let before = clock.begin().unwrap();
        clock.lose(before);
        assert_eq!(totals.lost(), 0);
        let window = totals.open_window();
        clock.lose(before);
        assert_eq!(totals.lost(), 1);
        // However much longer the wait was.
        totals.close_window(&window, 1);
        clock.lose(before);
        assert_eq!(totals.lost(), 2);
        let after = clock.begin().unwrap();
        clock.lose(after);
        assert_eq!(totals.lost(), 2);
    }
}
