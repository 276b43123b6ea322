//! Loads whose cost is known beforehand: the accountant must find it before it is believed.

use std::hint::black_box;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use super::{Accountant, GROUPS, Options, State, Usage};
use crate::Error;

/// One known answer and what was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    pub name: &'static str,
    pub passed: bool,
    /// The figure, with its unit and its limit.
    pub found: String,
}

/// The group of the thread that makes a known load.
const LOAD: u32 = 1;
const _: () = assert!((LOAD as usize) < GROUPS);

/// Makes each load for half a second and checks the account of it. For `lowroad selftest`: the
/// machine should be quiet, but only the load's own thread is judged.
pub fn known_answers() -> Result<Vec<Check>, Error> {
    let spin = load(spin)?;
    let idle = load(|| {
        thread::sleep(WINDOW);
        Ok(0)
    })?;
    let slow = load(|| datagrams(4_000))?;
    let fast = load(|| datagrams(16_000))?;

    let user = 100.0 * share(&spin.usage, State::User);
    let awake = spent(&idle.usage) * 100.0 / WINDOW.as_nanos() as f64;
    let each = [slow.per_unit(), fast.per_unit()];
    let apart = each[1] / each[0];
    let all = [&spin, &idle, &slow, &fast];
    let resyncs: u64 = all.iter().map(|load| load.usage.resyncs).sum();
    let sums = all.map(|load| load.usage.worst_sum_percent());
    let worst = sums.into_iter().fold(100.0_f64, |worst, sum| {
        if (sum - 100.0).abs() > (worst - 100.0).abs() {
            sum
        } else {
            worst
        }
    });
    Ok(vec![
        check(
            "a spinning thread is in user mode",
            user >= 95.0,
            format!("{user:.2} % (at least 95)"),
        ),
        check(
            "a sleeping thread is idle",
            awake <= 1.0,
            format!("{awake:.3} % awake (at most 1)"),
        ),
        check(
            "softirq time is linear in the packet rate",
            (0.6..=1.6).contains(&apart),
            format!(
                "{:.0} and {:.0} ns a packet at 4 and 16 kpps (ratio 0.6 to 1.6)",
                each[0], each[1]
            ),
        ),
        check(
            "states sum to the wall clock",
            (worst - 100.0).abs() <= 0.5,
            format!("{worst:.3} % (100 +- 0.5)"),
        ),
        check(
            "no state was lost",
            resyncs == 0,
            format!("{resyncs} resyncs (0)"),
        ),
    ])
}

const WINDOW: Duration = Duration::from_millis(500);

fn check(name: &'static str, passed: bool, found: String) -> Check {
    Check {
        name,
        passed,
        found,
    }
}

struct Load {
    usage: Usage,
    units: u64,
}

impl Load {
    /// Softirq NET_RX nanoseconds the load's thread was made to spend on each unit.
    fn per_unit(&self) -> f64 {
        let ns = self.usage.groups[LOAD as usize][State::SoftirqNetRx as usize];
        ns as f64 / self.units.max(1) as f64
    }
}

/// Accounts for `work`, which says how many units it did.
fn load(work: impl FnOnce() -> io::Result<u64> + Send) -> Result<Load, Error> {
    let task = || -> Result<Load, Error> {
        let thread = u32::try_from(nix::unistd::gettid().as_raw()).unwrap_or(0);
        let accountant = Accountant::attach(&Options {
            groups: [(thread, LOAD)].into(),
            time_programs: false,
        })?;
        // The choice holds from the next switch on.
        thread::sleep(Duration::from_millis(1));
        let before = accountant.snapshot()?;
        let units = work().map_err(Error::bpf("making a known load"))?;
        let after = accountant.snapshot()?;
        Ok(Load {
            usage: accountant.between(&before, &after),
            units,
        })
    };
    thread::scope(|scope| scope.spawn(task).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn spin() -> io::Result<u64> {
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < WINDOW {
        // `elapsed` reads the clock in user mode; the work between keeps it rare.
        rounds = (0..10_000_u64).fold(rounds, |sum, i| black_box(sum + i % 3));
    }
    Ok(rounds)
}

/// Sends datagrams over loopback at a constant rate: their receive softirq runs in this thread.
fn datagrams(rate: u64) -> io::Result<u64> {
    let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(sink.local_addr()?)?;
    let interval = 1_000_000_000 / rate;
    let start = sys::clock::monotonic_ns();
    let total = rate / 2;
    for packet in 0..total {
        sys::sched::sleep_until(start + packet * interval);
        socket.send(&[0; 100])?;
    }
    Ok(total)
}

fn spent(usage: &Usage) -> f64 {
    usage.groups[LOAD as usize].iter().sum::<u64>() as f64
}

fn share(usage: &Usage, state: State) -> f64 {
    usage.groups[LOAD as usize][state as usize] as f64 / spent(usage).max(1.0)
}
