//! The state machine, replayed in BPF over events with times that a test wrote down.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore as _, MapFlags, ProgramInput};

use super::snapshot::Cpu;
use super::*;

bpf::skeleton!(mod replay = "account_replay");

#[derive(Clone, Copy)]
enum Event {
    Start(State, u32),
    Enter(State),
    Leave,
    Rebase(State),
    Switch(State, u32),
    Follow(State, u32),
}

impl Event {
    /// The value of `struct replay_event`.
    fn encode(self, at_ns: u64) -> Vec<u8> {
        let (kind, state, group) = match self {
            Self::Start(state, group) => (0, state, group),
            Self::Enter(state) => (1, state, 0),
            Self::Leave => (2, State::Idle, 0),
            Self::Rebase(state) => (3, state, 0),
            Self::Switch(state, group) => (4, state, group),
            Self::Follow(state, group) => (5, state, group),
        };
        let mut bytes = at_ns.to_ne_bytes().to_vec();
        for field in [kind, state as u32, group, 0_u32] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes
    }
}

/// The account after `events`, read at `now_ns`.
fn after(events: &[(u64, Event)], now_ns: u64) -> Cpu {
    let mut storage = MaybeUninit::uninit();
    let skel = replay::AccountReplaySkelBuilder::default()
        .open(&mut storage)
        .and_then(OpenSkel::load)
        .unwrap();
    for (index, (at_ns, event)) in (0_u32..).zip(events) {
        let value = event.encode(*at_ns);
        skel.maps
            .events
            .update(&index.to_ne_bytes(), &value, MapFlags::ANY)
            .unwrap();
    }
    let output = skel.progs.replay.test_run(ProgramInput::default()).unwrap();
    assert_eq!(output.return_value, 0);
    let accounts = Map::new(&skel.maps.accounts).unwrap();
    Cpu::at(&accounts.get(&0_u32).unwrap().unwrap(), now_ns).unwrap()
}

fn times(of: &[(State, u64)]) -> Times {
    let mut times = [0; State::ALL.len()];
    for (state, ns) in of {
        times[*state as usize] = *ns;
    }
    times
}

#[test]
fn interrupts_nest_and_give_time_back() {
    if !sys::require::root() {
        return;
    }
    use Event::{Enter, Leave, Rebase, Start, Switch};
    let cpu = after(
        &[
            (100, Start(State::Idle, 0)),
            (200, Switch(State::Syscall, 2)),
            (210, Rebase(State::User)),
            (300, Enter(State::Hardirq)),
            (320, Leave),
            (321, Enter(State::SoftirqNetRx)),
            (330, Enter(State::Hardirq)),
            (334, Leave),
            (400, Leave),
            (450, Rebase(State::Syscall)),
            (470, Switch(State::Ksoftirqd, 0)),
            (480, Enter(State::SoftirqNetRx)),
            (500, Leave),
        ],
        510,
    );
    assert_eq!(
        cpu.times[2],
        times(&[
            (State::Syscall, 10 + 20),
            (State::User, 90 + 1 + 50),
            (State::Hardirq, 20 + 4),
            (State::SoftirqNetRx, 9 + 66),
        ])
    );
    assert_eq!(
        cpu.times[0],
        times(&[
            (State::Idle, 100),
            (State::Ksoftirqd, 10 + 10),
            (State::SoftirqNetRx, 20)
        ])
    );
    assert_eq!((cpu.events, cpu.switches, cpu.resyncs), (12, 2, 0));
    let sum: u64 = cpu.times.iter().flatten().sum();
    assert_eq!(sum, 510 - 100, "every nanosecond is somewhere");
}

#[test]
fn missed_switch_is_counted() {
    if !sys::require::root() {
        return;
    }
    use Event::{Enter, Follow, Leave, Start, Switch};
    let cpu = after(
        &[
            (100, Start(State::User, 3)),
            // The interrupt finds the idle task, although no switch to it was seen.
            (150, Follow(State::Idle, 0)),
            (150, Enter(State::Hardirq)),
            (160, Leave),
            (190, Switch(State::User, 3)),
        ],
        200,
    );
    assert_eq!(cpu.unseen, 1);
    let idle = times(&[(State::Idle, 50 + 30), (State::Hardirq, 10)]);
    assert_eq!(cpu.times[0], idle);
    assert_eq!(cpu.times[3], times(&[(State::User, 10)]));
}

#[test]
fn a_lost_exit_is_counted_and_does_not_spread() {
    if !sys::require::root() {
        return;
    }
    use Event::{Enter, Leave, Rebase, Start};
    let cpu = after(
        &[
            (100, Start(State::User, 0)),
            (110, Enter(State::Hardirq)),
            (150, Rebase(State::Syscall)),
            (160, Leave),
            (170, Rebase(State::User)),
        ],
        200,
    );
    assert_eq!(cpu.resyncs, 1);
    assert_eq!(
        cpu.times[0],
        times(&[
            (State::User, 10 + 30),
            (State::Hardirq, 40),
            (State::Syscall, 20)
        ])
    );
}

#[test]
fn a_clock_read_before_an_interrupt_takes_nothing_back() {
    if !sys::require::root() {
        return;
    }
    use Event::{Enter, Leave, Start};
    let cpu = after(
        &[
            (100, Start(State::User, 0)),
            (200, Enter(State::Hardirq)),
            (220, Leave),
            // Read its clock at 190, then waited for the interrupt above.
            (190, Enter(State::SoftirqTimer)),
            (230, Leave),
        ],
        230,
    );
    assert_eq!(
        cpu.times[0],
        times(&[
            (State::User, 100),
            (State::Hardirq, 20),
            (State::SoftirqTimer, 10)
        ])
    );
}

#[test]
fn usage_is_the_difference_and_knows_when_it_is_wrong() {
    let cpu = |user, idle, resyncs| Cpu {
        times: std::array::from_fn(|group| match group {
            0 => times(&[(State::Idle, idle)]),
            1 => times(&[(State::User, user), (State::SoftirqRcu, 5)]),
            _ => times(&[]),
        }),
        events: 1,
        switches: 1,
        resyncs,
        unseen: 0,
    };
    let at = |at_ns, cpus| Snapshot {
        at_ns,
        cpus,
        programs: Vec::new(),
    };
    let before = at(1_000, vec![Some(cpu(100, 900, 0)), None]);
    let after = at(2_000, vec![Some(cpu(400, 1_600, 0)), None]);
    let usage = Usage::between(&before, &after, &[]);
    assert_eq!(
        (usage.wall_ns, usage.busy_ns(), usage.total(State::User)),
        (1_000, 300, 300)
    );
    assert_eq!(usage.groups[1], times(&[(State::User, 300)]));
    assert!((usage.worst_sum_percent() - 100.0).abs() < 1e-9);
    assert_eq!(usage.violations(), Vec::<String>::new());
    assert_eq!(
        usage.by_name().into_iter().collect::<Vec<_>>(),
        [("idle".to_owned(), 700.0), ("user".to_owned(), 300.0)]
    );

    let short = at(2_100, vec![Some(cpu(400, 1_600, 3)), None]);
    assert_eq!(Usage::between(&before, &short, &[]).violations().len(), 2);
}

#[test]
fn it_attaches_counts_and_detaches() {
    if !sys::require::root() {
        return;
    }
    let accountant = Accountant::attach(&Options {
        groups: [(std::process::id(), 3)].into(),
        time_programs: true,
    })
    .unwrap();
    let before = accountant.snapshot().unwrap();
    // Enough switches and system calls for every state that this thread can cause.
    for _ in 0..20 {
        thread::sleep(Duration::from_millis(1));
    }
    let after = accountant.snapshot().unwrap();
    let usage = accountant.between(&before, &after);
    assert!(usage.switches >= 20, "{usage:?}");
    assert!(usage.groups[3][State::Syscall as usize] > 0, "{usage:?}");
    assert!(usage.own_ns > 0);
    assert_eq!(usage.resyncs, 0);
    let own = accountant.own.clone();
    drop(accountant);
    let gone = || {
        let left = programs::programs();
        left.iter().all(|program| !own.contains(&program.id))
    };
    // The kernel frees a program after a grace period.
    let deadline = Instant::now() + Duration::from_secs(10);
    while !gone() {
        assert!(Instant::now() < deadline, "the programs are still loaded");
        thread::sleep(Duration::from_millis(10));
    }
}
