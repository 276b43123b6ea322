//! The client's part of transactions: each is timed from when it was sent, or should have been.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::stream::{is_loss, send};
use super::{Totals, payload};
use crate::message::Cookie;
use crate::outcome::Times;
use crate::pace::Pace;
use crate::socket::{self, timed_out};
use crate::spec::Spec;

/// What has not been answered for so long is lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// A request of more bytes than these may take its time to be written.
const LARGE: usize = 64 << 10;

/// The moments at which transactions begin, and the times that they took.
#[derive(Debug)]
pub(crate) struct Clock<'a> {
    pace: Option<Pace>,
    totals: &'a Totals,
    times: Times,
    /// When the transaction began that is neither done nor lost yet.
    under_way: Option<Instant>,
}

impl<'a> Clock<'a> {
    pub(crate) fn new(totals: &'a Totals) -> Self {
        Self {
            pace: None,
            totals,
            times: Times::default(),
            under_way: None,
        }
    }

    /// The flow has met its other end: where transactions have times of their own, they count from now.
    pub(crate) fn start(&mut self, spec: &Spec, flow: u16) {
        self.pace = spec.rate.map(|rate| Pace::new(rate, flow, spec.flows));
    }

    /// When the next one begins, or should have; none when all have to stop. It counts if the window was
    /// open then.
    fn next(&mut self) -> Option<(Instant, bool)> {
        let begun = self.begin();
        self.under_way = begun.map(|(begin, _)| begin);
        begun
    }

    fn begin(&mut self) -> Option<(Instant, bool)> {
        let totals = self.totals;
        if totals.is_stopped() {
            return None;
        }
        let Some(pace) = &mut self.pace else {
            return Some((Instant::now(), totals.is_measured()));
        };
        let free = Instant::now();
        let due = pace.wait(|| totals.is_stopped())?;
        let counts = totals.is_measured();
        if counts {
            // The wait for the one before is the path's, and in this one's time; what is beyond that is this end's own.
            self.times.began_late(due.max(free).elapsed());
        } else if let Some((_, closed)) = totals.measured() {
            if due < closed {
                self.times.leave_out(closed - due, 1);
            }
            return None;
        }
        Some((due, counts))
    }

    fn done(&mut self, (begin, counts): (Instant, bool), bytes: usize) {
        let took = begin.elapsed();
        self.under_way = None;
        self.totals.count(bytes);
        if counts {
            self.times.took(took);
        }
    }

    /// One that began before the window, and was waited for within it, has kept that empty.
    fn lost(&mut self, (begin, _): (Instant, bool)) {
        self.under_way = None;
        if self.totals.was_measured_since(begin) {
            self.totals.lose();
        }
    }

    /// The flow has ended so, with a transaction under way maybe. If this end has given that up, it took at least until
    /// now, and counts where a lost one would. If the other end has broken it off, it has not taken long: it is why the
    /// test has ended.
    pub(crate) fn end(&mut self, ended: &io::Result<()>) {
        let given_up = self.totals.has_given_up() || ended.as_ref().is_err_and(timed_out);
        if let Some(begin) = self.under_way.take()
            && given_up
            && self.totals.was_measured_since(begin)
        {
            self.times.leave_unfinished(begin.elapsed());
        }
    }

    /// What there is when the window is closed, however the flow has ended. What was due in it and never begun
    /// took at least until then.
    pub(crate) fn times(mut self) -> Times {
        if let (Some(pace), Some((opened, closed))) = (self.pace, self.totals.measured()) {
            self.times.leave_out_all(&pace, opened, closed);
        }
        self.times
    }
}

/// Over one connection.
pub(crate) fn tcp(stream: &mut TcpStream, spec: &Spec, clock: &mut Clock<'_>) -> io::Result<()> {
    let totals = clock.totals;
    let request = payload::zeros(spec.request);
    let mut room = payload::room(spec.response);
    stream.set_write_timeout(Some(payload::WRITE))?;
    while let Some(begun) = clock.next() {
        payload::write(stream, request, totals)?;
        payload::read(stream, spec.response, &mut room, totals)?;
        clock.done(begun, spec.response as usize);
    }
    Ok(())
}

/// Over a connection each, from its opening until the answer is there.
pub(crate) fn connect(
    to: SocketAddr,
    cookie: &Cookie,
    spec: &Spec,
    clock: &mut Clock<'_>,
) -> io::Result<()> {
    let totals = clock.totals;
    // One write, with the cookie.
    let mut request = cookie.to_vec();
    request.resize(request.len() + spec.request as usize, 0);
    let mut room = payload::room(spec.response);
    let mut sized = false;
    while let Some(begun) = clock.next() {
        let socket = socket::tcp(to.ip(), spec)?;
        socket.connect_timeout(&to.into(), PATIENCE * 5)?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE * 5))?;
        // What is small needs none, and this call is in its time.
        if request.len() > LARGE {
            stream.set_write_timeout(Some(payload::WRITE))?;
        }
        payload::write(&mut stream, &request, totals)?;
        payload::read(&mut stream, spec.response, &mut room, totals)?;
        clock.done(begun, spec.response as usize);
        if !sized {
            // All are alike.
            totals.sizes(&(&stream).into());
            sized = true;
        }
        // The server closes first: its end, which has room for it, is the one that lingers.
        let _end = stream.read(&mut [0]);
    }
    Ok(())
}

/// In a datagram each way.
pub(crate) fn udp(socket: &UdpSocket, spec: &Spec, clock: &mut Clock<'_>) -> io::Result<()> {
    let mut request = vec![0; spec.request as usize];
    let mut room = vec![0; 1 << 16];
    let mut number = 0_u8;
    while let Some(begun) = clock.next() {
        // Never 0, which a cookie begins with: it may come once more.
        number = number.checked_add(1).unwrap_or(1);
        if let Some(first) = request.first_mut() {
            *first = number;
        }
        send(socket, &request)?;
        match answer(socket, number, &mut room)? {
            Some(received) => clock.done(begun, received),
            None => clock.lost(begun),
        }
    }
    Ok(())
}

/// Waits for the answer to this request; those to others come too late.
fn answer(socket: &UdpSocket, number: u8, room: &mut [u8]) -> io::Result<Option<usize>> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        match socket.recv(room) {
            // It was cut.
            Ok(0) => break,
            Ok(received) if room.first() == Some(&number) => return Ok(Some(received)),
            Ok(_) => {}
            Err(error) if timed_out(&error) || is_loss(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::thread;

    use super::*;
    use crate::spec::Test;

    fn paced(rate: f64) -> Spec {
        Spec {
            rate: Some(rate),
            ..Spec::new(Test::TcpRr, Duration::from_secs(1))
        }
    }

    #[test]
    fn what_was_due_and_never_begun_took_until_the_window_was_closed() {
        let totals = Totals::default();
        let window = totals.mark();
        let mut clock = Clock::new(&totals);
        clock.start(&paced(1000.0), 0);
        let begun = clock.next().unwrap();
        // The path stands still until the end: some ten more were due meanwhile.
        thread::sleep(Duration::from_millis(10));
        totals.close(&window, 1);
        clock.done(begun, 1);
        totals.stop();
        assert!(clock.next().is_none());
        let times = clock.times();
        assert!(times.unsent >= 9, "{times:?}");
        assert_eq!(times.latency.count(), times.unsent + 1);
        // The oldest has waited all the while but for its interval.
        assert!(times.latency.quantile(0.9) >= 8_000_000, "{times:?}");
        assert_eq!(times.late.unwrap().count(), 1);
    }

    #[test]
    fn what_is_late_for_the_one_before_it_is_not_this_ends_doing() {
        let totals = Totals::default();
        totals.mark();
        let mut clock = Clock::new(&totals);
        clock.start(&paced(1e6), 0);
        thread::sleep(Duration::from_millis(50));
        let (due, counts) = clock.next().unwrap();
        clock.done((due, counts), 1);
        let times = clock.times();
        assert!(counts && times.latency.min() >= 50_000_000);
        assert!(times.late.unwrap().max() < times.latency.min());
        // Nobody has closed the window.
        assert_eq!(times.unsent, 0);
    }

    #[test]
    fn in_a_closed_loop_nothing_is_due() {
        let totals = Totals::default();
        let window = totals.mark();
        let mut clock = Clock::new(&totals);
        clock.start(&Spec::new(Test::TcpRr, Duration::from_secs(1)), 0);
        let begun = clock.next().unwrap();
        totals.close(&window, 1);
        clock.done(begun, 1);
        let times = clock.times();
        assert_eq!((times.latency.count(), times.unsent), (1, 0));
        assert!(times.late.is_none());
    }

    /// What a clock has of a transaction that had begun when the flow ended so.
    fn left(totals: &Totals, mut clock: Clock<'_>, ended: io::ErrorKind) -> Times {
        totals.stop();
        clock.end(&Err(ended.into()));
        clock.times()
    }

    #[test]
    fn what_is_given_up_took_at_least_until_then() {
        let closed = Spec::new(Test::TcpRr, Duration::from_secs(1));
        let open = paced(1e-3);
        for (spec, measured) in [(&closed, true), (&open, true), (&closed, false)] {
            let totals = Totals::default();
            let mut clock = Clock::new(&totals);
            clock.start(spec, 0);
            // One that began before the window has kept it empty.
            let window = measured.then(|| totals.mark());
            clock.next().unwrap();
            let window = window.unwrap_or_else(|| totals.mark());
            thread::sleep(Duration::from_millis(5));
            totals.close(&window, 1);
            totals.cut();
            let times = left(&totals, clock, io::ErrorKind::UnexpectedEof);
            let counted = (times.unfinished, times.unsent, times.latency.count());
            assert_eq!(counted, (1, 0, 1), "{times:?}");
            assert!(times.latency.max() >= 5_000_000, "{times:?}");
        }
        // So did what has run out of its own time.
        let totals = Totals::default();
        totals.mark();
        let mut clock = Clock::new(&totals);
        clock.next().unwrap();
        let times = left(&totals, clock, io::ErrorKind::WouldBlock);
        assert_eq!((times.unfinished, times.latency.count()), (1, 1));
    }

    #[test]
    fn what_is_done_or_broken_off_or_none_of_the_windows_is_not_given_up() {
        let totals = Totals::default();
        let window = totals.mark();
        let begun = || {
            let mut clock = Clock::new(&totals);
            let begun = clock.next().unwrap();
            (clock, begun)
        };
        // The server is gone: how long that took is no time of a transaction.
        let (broken, _) = begun();
        // The last one of a flow is done after the window.
        let (mut last, first) = begun();
        totals.close(&window, 1);
        last.done(first, 1);
        // And this one has not begun in it.
        let (after, _) = begun();
        let unfinished = |clock, count| {
            let times = left(&totals, clock, io::ErrorKind::UnexpectedEof);
            assert_eq!((times.unfinished, times.latency.count()), (0, count));
        };
        unfinished(broken, 0);
        totals.cut();
        unfinished(last, 1);
        unfinished(after, 0);
    }

    #[test]
    fn a_wait_that_reaches_into_the_window_is_a_loss_within_it() {
        let totals = Totals::default();
        let mut clock = Clock::new(&totals);
        let before = clock.next().unwrap();
        clock.lost(before);
        assert_eq!(totals.lost(), 0);
        let window = totals.mark();
        clock.lost(before);
        assert_eq!(totals.lost(), 1);
        // However much longer the wait was.
        totals.close(&window, 1);
        clock.lost(before);
        assert_eq!(totals.lost(), 2);
        let after = clock.next().unwrap();
        clock.lost(after);
        assert_eq!(totals.lost(), 2);
    }
}
