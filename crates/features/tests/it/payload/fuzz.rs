//! Every reader on noise and on damaged input, from ten fixed seeds: it may refuse, never panic.

use features::payload::dns;
use features::payload::tls::{Accumulator, MAX_HELLO, Search, State};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::dns::{answered, question};
use super::hello::browser;

pub(crate) fn for_ten_seeds<S: Strategy>(strategy: &S, property: impl Fn(S::Value)) {
    for seed in 0..10 {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let config = Config {
            failure_persistence: None,
            ..Config::with_cases(1000 * sys::require::fuzz())
        };
        let result = TestRunner::new_with_rng(config, rng).run(strategy, |value| {
            property(value);
            Ok(())
        });
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}

/// `good` with up to eight bytes changed and its end cut off.
pub(crate) fn damaged(good: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<Index>(), any::<u8>());
    let changes = prop::collection::vec(change, 0..8);
    (changes, any::<Index>()).prop_map(move |(changes, cut)| {
        let mut bytes = good.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(good.len() + 1));
        bytes
    })
}

fn check_state(state: &State) {
    if let State::Found(hello) = state {
        assert_eq!(hello.ja4.len(), 36);
        let printable = |name: &String| name.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
        assert!(hello.sni.as_ref().is_none_or(printable));
    }
}

#[test]
fn streams() {
    let noise = prop::collection::vec(any::<u8>(), 0..200);
    for_ten_seeds(&noise, |bytes| {
        check_state(&Accumulator::new(0).feed(0, &bytes));
    });
    for fragment in [40, 1 << 14] {
        for_ten_seeds(&damaged(browser().records(fragment)), |bytes| {
            check_state(&Accumulator::new(0).feed(0, &bytes));
        });
    }
}

/// Segments anywhere around the start, of any content, in any order.
#[test]
fn segments_in_disorder() {
    let stream = browser().records(100);
    let size = stream.len();
    let segment = (0..size, 0..200_usize, any::<bool>());
    for_ten_seeds(&prop::collection::vec(segment, 0..40), |segments| {
        let mut search = Search::default();
        let mut answers = 0;
        for (at, length, back) in segments {
            let bytes = &stream[at..(at + length).min(size)];
            let at = u32::try_from(at).unwrap();
            let sequence = if back { 0_u32.wrapping_sub(at) } else { at };
            answers += usize::from(search.feed(Some(0), sequence, bytes).is_some());
        }
        assert!(answers <= 1);
    });
}

#[test]
fn a_hello_without_end_is_held_in_bounds() {
    let mut announced = vec![22, 3, 3, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3];
    announced.resize(5 + (1 << 14), 0);
    let mut accumulator = Accumulator::new(0);
    for (at, byte) in (0..).zip(&announced[..announced.len() - 1]) {
        assert_eq!(accumulator.feed(at, &[*byte]), State::More);
        assert!(accumulator.capacity() <= MAX_HELLO);
    }
}

#[test]
fn names() {
    let check = |bytes: &[u8]| {
        for ports in [[53, 4000], [4000, 4001]] {
            for name in [dns::over_udp(ports, bytes), dns::over_tcp(ports, bytes)] {
                let Some(name) = name else { continue };
                assert!((1..=4 * 255).contains(&name.len()));
                assert!(name.bytes().all(|byte| (b'!'..=b'~').contains(&byte)));
            }
        }
    };
    let noise = prop::collection::vec(any::<u8>(), 0..100);
    for_ten_seeds(&noise, |bytes| check(&bytes));
    for good in [question(b"\x03www\x07example\x03com\0"), answered()] {
        let framed = [&u16::try_from(good.len()).unwrap().to_be_bytes()[..], &good].concat();
        for_ten_seeds(&damaged(good), |bytes| check(&bytes));
        for_ten_seeds(&damaged(framed), |bytes| check(&bytes));
    }
}
