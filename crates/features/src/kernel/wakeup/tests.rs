//! A ring, its writer and its reader in steps of 10 us, without clocks and threads.

use std::collections::VecDeque;
use std::time::Duration;

use super::{LATENCY, Wakeup};

const STEP_NS: u64 = 10_000;
const SECOND: u64 = 1_000_000_000 / STEP_NS;
/// 16 MiB of records of 128 bytes.
const CAPACITY: u64 = 131_072;
const RECORD: u64 = 128;

/// What comes, and how quick the reader is.
struct Scene {
    name: &'static str,
    /// Packets a second at a step.
    rate: fn(u64) -> u64,
    /// Steps from being woken to running.
    lateness: u64,
    /// Records that the reader takes in a step.
    speed: u64,
}

#[derive(Debug, Default)]
struct Outcome {
    lost: u64,
    wakes: u64,
    /// Steps that the oldest record has waited.
    oldest: u64,
}

/// What the reader does.
enum Reader {
    Reads,
    Sleeps { until: u64, alarm: Option<u64> },
    Wakes { at: u64 },
}

/// Two seconds of a scene.
fn play(scene: &Scene, wakeup: Wakeup) -> Outcome {
    let mut outcome = Outcome::default();
    let mut waiting: VecDeque<(u64, u64)> = VecDeque::new();
    let (mut written, mut read, mut due) = (0, 0, 0);
    let mut reader = Reader::Reads;
    for now in 0..2 * SECOND {
        due += (scene.rate)(now);
        let come = due / SECOND;
        due %= SECOND;
        let taken = come.min(CAPACITY - (written - read));
        outcome.lost += come - taken;
        let was_empty = written == read;
        written += taken;
        if taken > 0 {
            waiting.push_back((now, taken));
        }
        match reader {
            Reader::Sleeps { until, alarm } => {
                let rings = alarm.is_some_and(|alarm| written > alarm);
                let every = wakeup == Wakeup::Every && was_empty && taken > 0;
                if now >= until || rings || every {
                    outcome.wakes += 1;
                    reader = Reader::Wakes {
                        at: now + scene.lateness,
                    };
                }
            }
            Reader::Wakes { at } if now >= at => reader = Reader::Reads,
            Reader::Wakes { .. } => {}
            Reader::Reads => {
                let mut left = scene.speed;
                while let Some((since, records)) = waiting.front_mut().filter(|_| left > 0) {
                    outcome.oldest = outcome.oldest.max(now - *since);
                    let part = left.min(*records);
                    *records -= part;
                    left -= part;
                    read += part;
                    if *records == 0 {
                        waiting.pop_front();
                    }
                }
                // A look at the ring ends where it was empty, or the reader would never rest.
                let pause = (left > 0)
                    .then(|| wakeup.pause(CAPACITY * RECORD, (written - read) * RECORD))
                    .flatten();
                if let Some(pause) = pause {
                    reader = Reader::Sleeps {
                        until: now + steps(pause.longest),
                        alarm: pause.alarm.map(|behind| read + behind / RECORD),
                    };
                }
            }
        }
    }
    outcome
}

fn steps(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap() / STEP_NS
}

/// Bursts of 60 ms at two million a second.
fn bursts(step: u64) -> u64 {
    if step % (SECOND / 2) < SECOND * 6 / 100 {
        2_000_000
    } else {
        500
    }
}

fn step_up(step: u64) -> u64 {
    if step < SECOND { 500 } else { 1_800_000 }
}

fn step_down(step: u64) -> u64 {
    if step < SECOND { 700_000 } else { 500 }
}

const SCENES: [Scene; 11] = {
    const QUICK: Scene = Scene {
        name: "",
        rate: |_| 0,
        lateness: 1,
        speed: 50,
    };
    [
        Scene {
            name: "silence",
            ..QUICK
        },
        Scene {
            name: "500 pps",
            rate: |_| 500,
            ..QUICK
        },
        Scene {
            name: "5 kpps",
            rate: |_| 5_000,
            ..QUICK
        },
        Scene {
            name: "50 kpps",
            rate: |_| 50_000,
            ..QUICK
        },
        Scene {
            name: "280 kpps",
            rate: |_| 280_000,
            ..QUICK
        },
        Scene {
            name: "700 kpps",
            rate: |_| 700_000,
            ..QUICK
        },
        Scene {
            name: "bursts",
            rate: bursts,
            ..QUICK
        },
        Scene {
            name: "up",
            rate: step_up,
            ..QUICK
        },
        Scene {
            name: "down",
            rate: step_down,
            ..QUICK
        },
        Scene {
            name: "late",
            rate: |_| 700_000,
            lateness: 2_000,
            ..QUICK
        },
        Scene {
            name: "slow",
            rate: bursts,
            speed: 8,
            ..QUICK
        },
    ]
};

fn fixed() -> Vec<Wakeup> {
    let timers = [1, 2, 5, 10, 20, 50, 100].map(|time| Wakeup::Timer(Duration::from_millis(time)));
    timers.into_iter().chain([Wakeup::Every]).collect()
}

#[test]
fn what_overflows_overflows_with_every_fixed_setting_too() {
    for scene in SCENES {
        let lost = play(&scene, Wakeup::Adaptive).lost;
        for fixed in fixed() {
            let fixed_lost = play(&scene, fixed).lost;
            assert!(
                lost <= fixed_lost,
                "{}, {fixed:?}: {lost} > {fixed_lost}",
                scene.name
            );
        }
    }
}

#[test]
fn the_best_fixed_setting_wakes_no_less() {
    let loses = |fixed: &Wakeup| SCENES.iter().any(|scene| play(scene, *fixed).lost > 0);
    let (losing, sound): (Vec<_>, Vec<_>) = fixed().into_iter().partition(loses);
    assert!(losing.contains(&Wakeup::Timer(LATENCY)), "{losing:?}");
    assert!(
        sound.contains(&Wakeup::Timer(Duration::from_millis(20))),
        "{sound:?}"
    );
    let total = |wakeup| {
        SCENES
            .iter()
            .map(|scene| play(scene, wakeup).wakes)
            .sum::<u64>()
    };
    for fixed in sound {
        for scene in SCENES.iter().filter(|scene| (scene.rate)(0) > 0) {
            let (own, others) = (play(scene, Wakeup::Adaptive), play(scene, fixed));
            assert!(
                own.wakes <= others.wakes,
                "{}, {fixed:?}: {own:?}, {others:?}",
                scene.name
            );
        }
        assert!(total(Wakeup::Adaptive) < total(fixed));
    }
}

#[test]
fn no_record_waits_for_longer_than_is_said() {
    for scene in SCENES.iter().filter(|scene| scene.speed >= 50) {
        let outcome = play(scene, Wakeup::Adaptive);
        let reading = CAPACITY / scene.speed;
        let longest = steps(LATENCY) + scene.lateness + reading;
        assert!(outcome.oldest <= longest, "{}: {outcome:?}", scene.name);
    }
}

#[test]
fn a_reader_that_does_not_keep_up_does_not_sleep() {
    let half = CAPACITY * RECORD / 2;
    assert_eq!(Wakeup::Adaptive.pause(CAPACITY * RECORD, half), None);
    assert_eq!(Wakeup::Every.pause(CAPACITY * RECORD, RECORD), None);
}
