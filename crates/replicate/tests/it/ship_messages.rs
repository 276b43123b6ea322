//! Untrusted messages, with ten fixed seeds: valid ones are decoded, and malformed ones are errors.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use replicate::log::Beginning;
use replicate::ship::CopyState;
use replicate::ship::tcp::{
    Fork, Inbox, InvalidMessage, MAX_REQUEST, MAX_RESPONSE, Message, Reason, Tip,
};

use crate::common::{data, epoch, link, record, start};

fn all() -> Vec<Message> {
    let beginning = Beginning {
        id: *b"0123456789abcdef",
        first: 7,
        folded: 9,
    };
    let held = CopyState {
        term: 3,
        beginning,
        number: 30,
        at_ns: 5,
        epoch: 3,
    };
    let text = || "why".to_owned();
    let mut all = vec![
        Message::Welcome { version: 1 },
        Message::Hello {
            version: 1,
            held: None,
        },
        Message::Hello {
            version: 1,
            held: Some(held),
        },
        Message::Term(4),
        Message::Rewind(Fork {
            term: 4,
            epoch: 5,
            number: 6,
            at_ns: 7,
        }),
        Message::Begin(beginning),
        Message::Tip(Tip {
            number: 4,
            epoch: 2,
        }),
        Message::Received {
            number: 3,
            epoch: 1,
        },
    ];
    let entries = [
        start(),
        link(2, "name", 10),
        data(10, 5, &[1; 300]),
        epoch(3),
    ];
    let records = entries.into_iter().zip(1..);
    all.extend(records.map(|(entry, number)| Message::Record(record(number, entry))));
    let reasons = [
        Reason::Version,
        Reason::Compacted,
        Reason::OtherLog,
        Reason::Diverged,
        Reason::Full,
        Reason::Source,
        Reason::Term,
    ];
    all.extend(reasons.map(|reason| Message::Refused {
        reason,
        text: text(),
    }));
    all
}

fn bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in all() {
        message.put(&mut bytes);
    }
    bytes
}

/// The messages decoded from these bytes if they arrive in pieces of these sizes.
fn hear(bytes: &[u8], pieces: &[usize], largest: usize) -> (Vec<Message>, Option<InvalidMessage>) {
    let mut inbox = Inbox::new(largest);
    let (mut heard, mut rest, mut index) = (Vec::new(), bytes, 0);
    loop {
        match inbox.take() {
            Ok(Some(message)) => heard.push(message),
            Ok(None) if rest.is_empty() => return (heard, None),
            Ok(None) => {
                let (piece, later) = rest.split_at(pieces[index % pieces.len()].min(rest.len()));
                inbox.push(piece);
                (rest, index) = (later, index + 1);
            }
            Err(malformed) => return (heard, Some(malformed)),
        }
    }
}

fn seeds<S: Strategy>(cases: u32, what: &S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    for seed in 0..10 {
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
        let config = Config {
            failure_persistence: None,
            ..Config::with_cases(cases * sys::require::fuzz())
        };
        let result = TestRunner::new_with_rng(config, rng).run(what, &test);
        assert!(result.is_ok(), "seed {seed}: {result:?}");
    }
}

#[test]
fn what_was_said_is_heard_however_it_is_split() {
    seeds(50, &prop::collection::vec(1..400_usize, 1..20), |pieces| {
        let (heard, malformed) = hear(&bytes(), &pieces, MAX_RESPONSE);
        prop_assert_eq!(malformed, None);
        prop_assert_eq!(heard, all());
        Ok(())
    });
}

#[test]
fn changed_bytes_are_messages_or_an_error() {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8);
    seeds(200, &changes, |changes| {
        let mut bytes = bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let (heard, _) = hear(&bytes, &[64], MAX_REQUEST);
        for message in heard {
            let mut said = Vec::new();
            message.put(&mut said);
            prop_assert_eq!(Message::get(&said[4..]), Ok(message));
        }
        Ok(())
    });
}

#[test]
fn any_bytes_are_a_message_or_an_error() {
    seeds(300, &prop::collection::vec(any::<u8>(), 0..80), |bytes| {
        if let Ok(message) = Message::get(&bytes) {
            let mut said = Vec::new();
            message.put(&mut said);
            prop_assert_eq!(Message::get(&said[4..]), Ok(message));
        }
        Ok(())
    });
}

#[test]
fn a_length_is_refused_before_anything_is_read_for_it() {
    let mut inbox = Inbox::new(MAX_REQUEST);
    inbox.push(&257_u32.to_le_bytes());
    assert_eq!(inbox.take(), Err(InvalidMessage::Long(257)));
    let mut inbox = Inbox::new(MAX_REQUEST);
    inbox.push(&256_u32.to_le_bytes());
    assert_eq!(inbox.take(), Ok(None));
}

#[test]
fn a_refusal_writes_nothing_to_a_terminal_but_words() {
    let refusal = |text: &str| Message::Refused {
        reason: Reason::Full,
        text: text.to_owned(),
    };
    let mut bytes = Vec::new();
    refusal("\x1b[2Jgone\r\n\u{9b}31m").put(&mut bytes);
    assert_eq!(Message::get(&bytes[4..]), Ok(refusal("[2Jgone31m")));
}
