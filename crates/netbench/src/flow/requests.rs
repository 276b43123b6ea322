//! Requests whose answers are told apart by their number, so that a lost or slow answer changes no other time, as of a
//! STAMP session sender (RFC 8762). In an open loop each request is sent when it is due, whether or not those before it
//! have been answered. In a closed loop the next one follows the answer, or the time in which an answer should have come.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::{ANSWER_TIMEOUT, Clock, Counter, MAX_ANSWER_TIMEOUT, Transaction};
use crate::pace::{MAX_SLEEP, SPIN};

/// The shortest time that a closed loop waits for an answer.
pub(crate) const MIN_ANSWER_TIMEOUT: Duration = Duration::from_millis(50);
/// Requests that are sent without a look for answers.
const BURST: u32 = 32;
/// Requests under way. The oldest is lost when there are more, so that memory is bounded.
const MAX_UNDER_WAY: usize = 1 << 20;

/// How requests and answers pass, without waiting for either.
pub(crate) trait Exchange {
    fn socket(&self) -> BorrowedFd<'_>;

    /// Sends the request with this number. False if the socket has no room for it now.
    fn send(&mut self, number: u64) -> io::Result<bool>;

    /// Goes on with a request of which a part is sent. True if a part is left.
    fn flush(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// The number and the size of the next answer that has arrived; none before one has. A datagram that answers
    /// nothing has a number that is not under way.
    fn receive(&mut self) -> io::Result<Option<(u64, usize)>>;

    /// Whether an answer may be lost. Otherwise one that does not come is late.
    fn is_lossy(&self) -> bool;

    /// The shortest time that a closed loop waits for an answer before it goes on.
    fn min_answer_timeout(&self) -> Duration {
        MIN_ANSWER_TIMEOUT
    }
}

/// Requests that have no answer yet, by their numbers.
#[derive(Debug, Default)]
struct UnderWay {
    first: u64,
    requests: VecDeque<Option<Transaction>>,
    count: usize,
}

impl UnderWay {
    /// The number of the next request.
    fn next(&self) -> u64 {
        self.first + self.requests.len() as u64
    }

    fn push(&mut self, request: Transaction) {
        self.requests.push_back(Some(request));
        self.count += 1;
    }

    /// Removes a request; none if it is not under way.
    fn take(&mut self, number: u64) -> Option<Transaction> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let request = self.requests.get_mut(at)?.take()?;
        self.count -= 1;
        while let Some(None) = self.requests.front() {
            self.requests.pop_front();
            self.first += 1;
        }
        Some(request)
    }

    /// Removes the oldest request if there are too many.
    fn overflow(&mut self) -> Option<Transaction> {
        match self.requests.len() > MAX_UNDER_WAY {
            true => self.take(self.first),
            false => None,
        }
    }

    /// Removes the oldest request if it has waited for longer than the timeout.
    fn expire(&mut self, timeout: Duration) -> Option<Transaction> {
        let oldest = self.requests.front().copied().flatten()?;
        match oldest.begin.elapsed() > timeout {
            true => self.take(self.first),
            false => None,
        }
    }

    fn drain(&mut self) -> impl Iterator<Item = Transaction> + '_ {
        self.count = 0;
        self.requests.drain(..).flatten()
    }
}

/// How long a closed loop waits for an answer before it goes on: the retransmission timeout of RFC 6298, without its
/// clock granularity.
#[derive(Debug)]
struct AnswerTimeout {
    least: Duration,
    /// The smoothed round trip and its variation; none before the first.
    smoothed: Option<(Duration, Duration)>,
}

impl AnswerTimeout {
    fn new(least: Duration) -> Self {
        Self {
            least,
            smoothed: None,
        }
    }

    fn add(&mut self, took: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => (took, took / 2),
            Some((mean, variation)) => (
                (mean * 7 + took) / 8,
                (variation * 3 + mean.abs_diff(took)) / 4,
            ),
        });
    }

    fn get(&self) -> Duration {
        let timeout = self.smoothed.map(|(mean, variation)| mean + variation * 4);
        timeout.map_or(ANSWER_TIMEOUT, |it| it.clamp(self.least, ANSWER_TIMEOUT))
    }
}

/// Sends each request when the one before is answered, or should have been. A late answer has its time all the same, until
/// [`MAX_ANSWER_TIMEOUT`]. Reads of the socket time out.
pub(crate) fn run_closed(
    exchange: &mut dyn Exchange,
    clock: &mut Clock<'_>,
    counter: Counter<'_>,
) -> io::Result<()> {
    let mut under_way = UnderWay::default();
    let mut timeout = AnswerTimeout::new(exchange.min_answer_timeout());
    let ended = transact_closed(exchange, clock, counter, &mut under_way, &mut timeout)
        .and_then(|()| drain(exchange, clock, counter, &mut under_way));
    for request in under_way.drain() {
        clock.cut_off(request);
    }
    ended
}

fn transact_closed(
    exchange: &mut dyn Exchange,
    clock: &mut Clock<'_>,
    counter: Counter<'_>,
    under_way: &mut UnderWay,
    timeout: &mut AnswerTimeout,
) -> io::Result<()> {
    while let Some(request) = clock.begin() {
        let number = under_way.next();
        while !exchange.send(number)? {
            if counter.is_stopped() {
                return Ok(());
            }
        }
        under_way.push(request);
        let begun = Instant::now();
        while begun.elapsed() < timeout.get() && !counter.is_stopped() {
            let Some((answered, bytes)) = exchange.receive()? else {
                continue;
            };
            if let Some(request) = under_way.take(answered) {
                timeout.add(request.begin.elapsed());
                clock.complete(request, bytes);
            }
            if answered == number {
                break;
            }
        }
        while let Some(lost) = under_way.expire(MAX_ANSWER_TIMEOUT) {
            clock.lose(lost);
        }
    }
    Ok(())
}

/// Sends requests at their times and receives answers, until the test stops; then waits for the answers that are on
/// the way.
pub(crate) fn run_open(
    exchange: &mut dyn Exchange,
    clock: &mut Clock<'_>,
    counter: Counter<'_>,
) -> io::Result<()> {
    let mut under_way = UnderWay::default();
    let ended = transact(exchange, clock, counter, &mut under_way)
        .and_then(|()| drain(exchange, clock, counter, &mut under_way));
    let lossy = exchange.is_lossy();
    for request in under_way.drain() {
        settle(lossy, clock, request);
    }
    ended
}

/// A request of an open loop whose answer is not waited for any longer.
fn settle(lossy: bool, clock: &mut Clock<'_>, request: Transaction) {
    match lossy {
        true => clock.cut_off_counted(request),
        false => clock.give_up(request),
    }
}

fn transact(
    exchange: &mut dyn Exchange,
    clock: &mut Clock<'_>,
    counter: Counter<'_>,
    under_way: &mut UnderWay,
) -> io::Result<()> {
    while !counter.is_stopped() {
        let mut blocked = exchange.flush()?;
        for _ in 0..BURST {
            if blocked || clock.due().is_none_or(|due| due > Instant::now()) {
                break;
            }
            match exchange.send(under_way.next())? {
                true => under_way.push(match clock.begin_due() {
                    Some(request) => request,
                    None => return Ok(()),
                }),
                false => blocked = true,
            }
            blocked = blocked || exchange.flush()?;
            if let Some(oldest) = under_way.overflow() {
                settle(exchange.is_lossy(), clock, oldest);
            }
        }
        receive_all(exchange, clock, under_way)?;
        let left = clock
            .due()
            .map(|due| due.saturating_duration_since(Instant::now()));
        // What is due has to wait for room, or for nothing.
        let left = match (blocked, left) {
            (false, Some(left)) => left.saturating_sub(SPIN).min(MAX_SLEEP),
            (true, _) | (_, None) => MAX_SLEEP,
        };
        if !left.is_zero() {
            wait(exchange.socket(), blocked, left)?;
        }
    }
    Ok(())
}

/// Receives the answers that have arrived. True if there was any.
fn receive_all(
    exchange: &mut dyn Exchange,
    clock: &mut Clock<'_>,
    under_way: &mut UnderWay,
) -> io::Result<bool> {
    let mut any = false;
    for _ in 0..BURST {
        let Some((number, bytes)) = exchange.receive()? else {
            break;
        };
        any = true;
        if let Some(request) = under_way.take(number) {
            clock.complete(request, bytes);
        }
    }
    Ok(any)
}

/// Waits for answers to what is under way until none has come for the time after which it is lost. The end of the test
/// bounds this.
fn drain(
    exchange: &mut dyn Exchange,
    clock: &mut Clock<'_>,
    counter: Counter<'_>,
    under_way: &mut UnderWay,
) -> io::Result<()> {
    let mut quiet_since = Instant::now();
    while under_way.count > 0 && !counter.is_aborted() {
        let blocked = exchange.flush()?;
        if receive_all(exchange, clock, under_way)? {
            quiet_since = Instant::now();
        } else if quiet_since.elapsed() > clock.answer_timeout() {
            break;
        } else {
            wait(exchange.socket(), blocked, MAX_SLEEP)?;
        }
    }
    Ok(())
}

/// Waits until an answer has arrived, or there is room to send where that is `blocked`, or for this time.
fn wait(socket: BorrowedFd<'_>, blocked: bool, long: Duration) -> io::Result<()> {
    let mut events = PollFlags::POLLIN;
    events.set(PollFlags::POLLOUT, blocked);
    let mut polled = [PollFd::new(socket.as_fd(), events)];
    match ppoll(&mut polled, Some(TimeSpec::from_duration(long)), None) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::thread;

    use super::*;
    use crate::flow::Totals;
    use crate::spec::Spec;
    use crate::test::Test;

    /// Answers arrive after a time, but for those that are lost.
    struct Path {
        socket: UnixDatagram,
        delay: Duration,
        lost: fn(u64) -> bool,
        on_the_way: VecDeque<(Instant, u64)>,
        /// The requests that are taken at once.
        room: usize,
    }

    impl Exchange for Path {
        fn socket(&self) -> BorrowedFd<'_> {
            self.socket.as_fd()
        }

        fn send(&mut self, number: u64) -> io::Result<bool> {
            if self.on_the_way.len() >= self.room {
                return Ok(false);
            }
            if !(self.lost)(number) {
                let arrives = Instant::now() + self.delay;
                self.on_the_way.push_back((arrives, number));
            }
            Ok(true)
        }

        fn receive(&mut self) -> io::Result<Option<(u64, usize)>> {
            let arrived = self
                .on_the_way
                .front()
                .filter(|(at, _)| *at <= Instant::now());
            let number = arrived.map(|(_, number)| *number);
            if number.is_some() {
                self.on_the_way.pop_front();
            }
            Ok(number.map(|number| (number, 1)))
        }

        fn is_lossy(&self) -> bool {
            true
        }
    }

    /// The times of a test of requests at this rate over a path.
    fn measured(rate: f64, lost: fn(u64) -> bool, room: usize) -> (crate::outcome::Times, u64) {
        let spec = Spec {
            rate: Some(rate),
            ..Spec::new(Test::UdpRr, Duration::from_secs(1))
        };
        let totals = Totals::new(&spec);
        let (socket, _other) = UnixDatagram::pair().unwrap();
        let mut path = Path {
            socket,
            delay: Duration::from_millis(40),
            lost,
            on_the_way: VecDeque::new(),
            room,
        };
        let mut clock = Clock::new(totals.counter(0));
        clock.start(&spec, 0);
        let window = totals.open_window();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(300));
                totals.close_window(&window, 1);
                totals.stop();
            });
            run_open(&mut path, &mut clock, totals.counter(0)).unwrap();
        });
        (clock.times(), totals.lost())
    }

    #[test]
    fn requests_do_not_wait_for_answers() {
        let (times, lost) = measured(1000.0, |_| false, usize::MAX);
        // Forty are under way at once, and each takes what the path takes.
        assert!(times.latency.min() >= 39_900_000, "{times:?}");
        assert!(
            times.sent >= 250 && times.latency.count() >= 250,
            "{times:?}"
        );
        assert_eq!((lost, times.unfinished), (0, 0));
    }

    #[test]
    fn lost_answer_has_no_time_and_changes_no_other() {
        let (times, lost) = measured(1000.0, |number| number % 10 == 3, usize::MAX);
        assert!(times.latency.min() >= 39_900_000, "{times:?}");
        assert_eq!(lost + times.latency.count(), times.sent);
        assert!(lost.abs_diff(times.sent / 10) <= 1, "{lost} of {times:?}");
        assert_eq!(times.bounds.count(), times.unsent);
    }

    #[test]
    fn path_without_room_leaves_requests_unsent() {
        // One under way, of 40 ms each: seven or eight in the window.
        let (times, lost) = measured(1000.0, |_| false, 1);
        assert!(
            times.unsent > 200 && times.sent < 20 && lost == 0,
            "{times:?}"
        );
        assert_eq!(times.bounds.count(), times.unsent);
    }

    #[test]
    fn closed_loop_goes_on_after_lost_answer() {
        let mut times = closed(|number| number % 5 == 3, Duration::from_millis(5));
        // One in five costs 50 ms, and not the second after which it is lost.
        assert!(times.0.latency.count() >= 10, "{times:?}");
        assert!(times.1 >= 2, "{times:?}");
        times = closed(|_| false, Duration::from_millis(5));
        assert!(times.0.latency.count() >= 20 && times.1 == 0, "{times:?}");
    }

    /// The times of a closed loop, and the requests that it lost.
    fn closed(lost: fn(u64) -> bool, delay: Duration) -> (crate::outcome::Times, u64) {
        let spec = Spec::new(Test::UdpRr, Duration::from_secs(1));
        let totals = Totals::new(&spec);
        let (socket, _other) = UnixDatagram::pair().unwrap();
        let mut path = Path {
            socket,
            delay,
            lost,
            on_the_way: VecDeque::new(),
            room: usize::MAX,
        };
        let mut clock = Clock::new(totals.counter(0));
        let window = totals.open_window();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(500));
                totals.close_window(&window, 1);
                totals.stop();
            });
            run_closed(&mut path, &mut clock, totals.counter(0)).unwrap();
        });
        (clock.times(), totals.lost())
    }

    #[test]
    fn answer_after_more_than_a_second_has_its_time() {
        let (times, lost) = closed(|_| false, Duration::from_millis(1200));
        assert_eq!((lost, times.unfinished), (0, 0), "{times:?}");
        assert!(times.latency.min() >= 1_200_000_000, "{times:?}");
        assert!(times.latency.count() > 0);
    }

    #[test]
    fn answer_timeout_follows_round_trip() {
        let mut timeout = AnswerTimeout::new(MIN_ANSWER_TIMEOUT);
        assert_eq!(timeout.get(), ANSWER_TIMEOUT);
        let ms = Duration::from_millis;
        for _ in 0..50 {
            timeout.add(ms(200));
        }
        assert!(timeout.get() < ms(220), "{timeout:?}");
        timeout.add(ms(400));
        assert!(timeout.get() > ms(400), "{timeout:?}");
        for _ in 0..50 {
            timeout.add(ms(1));
        }
        assert_eq!(timeout.get(), MIN_ANSWER_TIMEOUT);
    }

    #[test]
    fn requests_under_way_are_bounded() {
        let mut under_way = UnderWay::default();
        let totals = Totals::new(&Spec::new(Test::UdpRr, Duration::from_secs(1)));
        let mut clock = Clock::new(totals.counter(0));
        let request = clock.begin().unwrap();
        for number in 0..=MAX_UNDER_WAY as u64 {
            assert_eq!(under_way.next(), number);
            assert!(under_way.overflow().is_none());
            under_way.push(request);
        }
        assert!(under_way.overflow().is_some() && under_way.take(0).is_none());
        assert!(under_way.take(2).is_some() && under_way.take(2).is_none());
        assert!(under_way.take(1).is_some());
        assert_eq!(
            (under_way.first, under_way.take(u64::MAX).is_none()),
            (3, true)
        );
        assert_eq!(under_way.count, MAX_UNDER_WAY - 2);
    }
}
