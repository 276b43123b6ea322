//! When to send: at times that were fixed before, however late what came before was.

use std::thread;
use std::time::{Duration, Instant};

/// So long before its time a sleeper is woken, and waits awake: timers are later than that, seldom more.
const AWAKE: Duration = Duration::from_micros(70);
/// At most this long without looking whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The times of one flow's messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    begin: Instant,
    interval: Duration,
    sent: u32,
    /// Times are counted from here anew when `sent` has gone round.
    base: Duration,
}

impl Pace {
    /// `rate` a second of all flows; the `flow`th of `flows` begins that much later.
    pub(crate) fn new(rate: f64, flow: u16, flows: u16) -> Self {
        let flows = f64::from(flows.max(1));
        let interval = Duration::try_from_secs_f64(flows / rate).unwrap_or(Duration::MAX);
        Self {
            begin: Instant::now(),
            interval,
            sent: 0,
            base: interval.mul_f64(f64::from(flow) / flows),
        }
    }

    /// Waits until the next message is due, and says when that was; none if `stop` came first.
    pub(crate) fn wait(&mut self, stop: impl Fn() -> bool) -> Option<Instant> {
        let due = self.due()?;
        loop {
            let now = Instant::now();
            if now >= due {
                break;
            }
            if stop() {
                return None;
            }
            let left = due - now;
            match left.checked_sub(AWAKE) {
                Some(early) => thread::sleep(early.min(LOOK)),
                None => std::hint::spin_loop(),
            }
        }
        self.sent = self.sent.checked_add(1).unwrap_or_else(|| {
            self.base += self.interval * u32::MAX;
            1
        });
        Some(due)
    }

    fn due(&self) -> Option<Instant> {
        let after = self
            .interval
            .checked_mul(self.sent)?
            .checked_add(self.base)?;
        self.begin.checked_add(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_do_not_move_when_a_message_was_late() {
        let mut pace = Pace::new(1000.0, 1, 2);
        let first = pace.wait(|| false).unwrap();
        assert_eq!(first - pace.begin, Duration::from_millis(1));
        thread::sleep(Duration::from_millis(7));
        let times = [0; 5].map(|_| pace.wait(|| false).unwrap() - pace.begin);
        assert_eq!(times, [3, 5, 7, 9, 11].map(Duration::from_millis));
        let mut never = Pace::new(1e-6, 0, 1);
        assert!(never.wait(|| false).is_some());
        assert!(never.wait(|| true).is_none());
    }

    #[test]
    fn a_flow_that_has_sent_more_than_fits_goes_on() {
        let mut pace = Pace::new(1e9, 0, 1);
        pace.sent = u32::MAX;
        pace.begin -= pace.interval * u32::MAX;
        let last = pace.wait(|| false).unwrap();
        let next = pace.wait(|| false).unwrap();
        assert_eq!(next - last, pace.interval);
    }
}
