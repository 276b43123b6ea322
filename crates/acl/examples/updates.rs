//! Prints how fast rules come into a list while another thread looks up, and what that thread feels.
//!
//!     updates RULES [RATE]
//!
//! RULES is ClassBench text, with keys in RULES_trace. The list begins with nine tenths of the rules;
//! the others are inserted and erased, again and again, for two seconds, at most RATE (million in a
//! second, 1 where not given) at a time. The longest call by the processor time of its thread leaves
//! out what the scheduler gave to others.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement for the terminal"
)]

use std::fs::File;
use std::io::BufReader;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use acl::{BATCH, Key4, Live, Options, Reader, classbench};
use sys::clock;

const TIME: Duration = Duration::from_secs(2);

fn main() {
    let path = std::env::args().nth(1).expect("the rules");
    let rate: f64 = std::env::args()
        .nth(2)
        .map_or(1.0, |rate| rate.parse().unwrap());
    let open = |path: &str| BufReader::new(File::open(path).unwrap());
    let rules = classbench::rules(open(&path)).unwrap();
    let keys = classbench::trace(open(&format!("{path}_trace"))).unwrap();
    let (mut start, mut rest) = (Vec::new(), Vec::new());
    for (number, rule) in (0u32..).zip(rules) {
        let list = if number % 10 == 3 {
            &mut rest
        } else {
            &mut start
        };
        list.push((number, rule));
    }
    let live = Live::new(start, Options::default()).unwrap();
    let quiet = look_up(live.reader(), &keys, &still_for(Duration::from_millis(300)));
    println!("quiet: {quiet}");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = live.reader();
        let (keys, done) = (&keys, &done);
        let busy = scope.spawn(move || look_up(reader, keys, &|| done.load(Ordering::Acquire)));
        let (mut inserts, mut erases) = (Times::default(), Times::default());
        let started = Instant::now();
        while started.elapsed() < TIME {
            timed(&rest, rate, &mut inserts, |(number, rule)| {
                live.insert(*number, rule.clone()).unwrap();
            });
            timed(&rest, rate, &mut erases, |(number, _)| {
                live.erase(*number).unwrap();
            });
        }
        done.store(true, Ordering::Release);
        println!("inserts: {}", inserts.spread());
        println!("erases: {}", erases.spread());
        println!("meanwhile: {}", busy.join().unwrap());
    });
}

fn still_for(time: Duration) -> impl Fn() -> bool {
    let started = Instant::now();
    move || started.elapsed() > time
}

/// Appends the nanoseconds of each call; calls begin no faster than the rate.
fn timed<T>(items: &[T], rate: f64, times: &mut Times, mut call: impl FnMut(&T)) {
    let begun = Instant::now();
    for (number, item) in items.iter().enumerate() {
        let due = begun + Duration::from_secs_f64(number as f64 / rate / 1e6);
        let mut started = Instant::now();
        while started < due {
            std::hint::spin_loop();
            started = Instant::now();
        }
        times.take(|| call(item));
    }
}

/// How long calls took, in nanoseconds.
#[derive(Default)]
struct Times {
    calls: Vec<u32>,
    /// The longest by its thread's processor time.
    busiest: u64,
}

impl Times {
    fn take(&mut self, call: impl FnOnce()) {
        let processor = clock::thread_cpu_ns();
        let started = Instant::now();
        call();
        let time = started.elapsed().as_nanos();
        self.busiest = self.busiest.max(clock::thread_cpu_ns() - processor);
        self.calls.push(u32::try_from(time).unwrap_or(u32::MAX));
    }

    fn spread(mut self) -> String {
        let times = &mut self.calls;
        times.sort_unstable();
        let total: f64 = times.iter().map(|&time| f64::from(time)).sum();
        let at = |share: f64| f64::from(times[((times.len() - 1) as f64 * share) as usize]) / 1e3;
        format!(
            "{} at {:.2} M/s, p50 {:.2} us, p99 {:.2}, p99.99 {:.1}, longest {:.1}, longest by processor time {:.1}",
            times.len(),
            times.len() as f64 * 1000.0 / total,
            at(0.5),
            at(0.99),
            at(0.9999),
            at(1.0),
            self.busiest as f64 / 1e3,
        )
    }
}

/// Looks up until told to stop: nanoseconds for a key, and how long batches took.
fn look_up(mut reader: Reader<u32>, keys: &[Key4], stop: &dyn Fn() -> bool) -> String {
    let mut found = vec![0; BATCH];
    let mut times = Times::default();
    'all: loop {
        for keys in keys.chunks_exact(BATCH) {
            if stop() {
                break 'all;
            }
            times.take(|| {
                reader.classify(keys, &mut found);
            });
        }
    }
    format!("batches of {BATCH}: {}", times.spread())
}
