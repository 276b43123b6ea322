//! The states of both sides of a TCP connection and the letters of its history, according to Zeek's rules.

use crate::dissect::tcp_flag::{ACK, FIN, RST, SYN};

use super::endpoint::{State, TcpEndpoint};
use super::history::{Event, History, Side};
use super::segment::Segment;
use super::stream::Reverse;

/// Both sides, the originator first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct States {
    pub(super) ends: [TcpEndpoint; 2],
}

impl States {
    /// Applies the next segment.
    pub(super) fn segment(
        &mut self,
        side: Side,
        segment: &Segment,
        reordering_ns: u64,
        history: &mut History,
    ) {
        let [one, other] = &mut self.ends;
        let (own, peer) = if side == 0 {
            (one, other)
        } else {
            (other, one)
        };
        own.synchronize(segment);
        letters(own, side, segment, history);
        windows(own, peer, side, segment, history);
        if segment.has(FIN) {
            own.fin_end = Some(segment.end());
        }
        let mut is_acknowledgement = false;
        if segment.has(ACK) {
            if peer.state == State::Inactive {
                peer.expect(segment.acknowledgement);
            } else {
                is_acknowledgement = peer.acknowledge(segment);
            }
        }
        if own.advance(segment) {
            history.scaled(side, 't', &mut own.counts.repetitions);
        }
        let reverse = Reverse {
            acknowledged: own.acknowledged,
            has_zero_window: peer.has_zero_window,
            reordering_ns,
        };
        own.stream.segment(segment, reverse);
        change(own, peer, side, segment);
        if is_acknowledgement {
            gaps(own, peer, 1 - side, segment, history);
        }
    }

    /// The name of the state of the connection.
    pub(super) fn name(&self, history: &History) -> &'static str {
        use State::{Closed, Established, Inactive, Reset, SynAckSent, SynSent};

        let [originator, responder] = &self.ends;
        match (originator.state, responder.state) {
            (SynSent | SynAckSent, Reset) => "REJ",
            (Reset, Reset) if originator.is_empty(responder) && responder.is_empty(originator) => {
                "REJ"
            }
            (originator, Reset) if originator.is_inactive() => "RSTRH",
            (_, Reset) => "RSTR",
            (Reset, responder) if !responder.is_inactive() => "RSTO",
            (Reset, _) if is_given_up(history) => "RSTOS0",
            (Reset, _) => "OTH",
            (Closed, Closed) => "SF",
            (Closed, responder) if responder.is_inactive() => "SH",
            (Closed, _) => "S2",
            (originator, Closed) if originator.is_inactive() => "SHR",
            (_, Closed) => "S3",
            (SynSent, Inactive) => "S0",
            (Established, Established) => "S1",
            _ => "OTH",
        }
    }
}

/// Whether the originator sent a SYN and then an RST before any other event of a connection.
fn is_given_up(history: &History) -> bool {
    let letters = history.letters();
    let letters = letters.strip_prefix('^').unwrap_or(letters);
    let until_reset = letters
        .strip_prefix('S')
        .and_then(|rest| rest.split_once('R'));
    until_reset.is_some_and(|(before, _)| !before.contains(['H', 'A', 'F', 'G', 'I', 'Q']))
}

/// Adds the letters for a segment's flags and payload.
fn letters(own: &mut TcpEndpoint, side: Side, segment: &Segment, history: &mut History) {
    let sequence = segment.sequence;
    match [SYN, FIN, RST].map(|flag| segment.has(flag)) {
        [_, true, true] => {
            history.once(side, Event::FinReset, 'i');
        }
        [true, true, _] | [true, _, true] => {
            history.once(side, Event::SynMixed, 'q');
        }
        [true, false, false] => {
            let letter = if segment.has(ACK) { 'h' } else { 's' };
            note(
                history,
                side,
                (Event::Syn, letter),
                (&mut own.latest_syn, sequence),
            );
        }
        [false, true, false] => {
            let at = sequence.wrapping_add(segment.payload);
            note(history, side, (Event::Fin, 'f'), (&mut own.latest_fin, at));
        }
        [false, false, true] => {
            let latest = &mut own.latest_reset;
            note(history, side, (Event::Reset, 'r'), (latest, sequence));
        }
        [false, false, false] if segment.payload > 0 => {
            history.once(side, Event::Data, 'd');
        }
        [false, false, false] if segment.has(ACK) => {
            history.once(side, Event::Ack, 'a');
        }
        [false, false, false] => {}
    }
}

/// Adds a letter for the first event of its kind, and again whenever the sequence number differs from the previous one.
fn note(
    history: &mut History,
    side: Side,
    (event, letter): (Event, char),
    (latest, sequence): (&mut u32, u32),
) {
    let had = history.once(side, event, letter);
    if had && *latest != sequence {
        history.add(side, letter);
    }
    *latest = sequence;
}

fn windows(
    own: &mut TcpEndpoint,
    peer: &TcpEndpoint,
    side: Side,
    segment: &Segment,
    history: &mut History,
) {
    if segment.has(RST) {
        return;
    }
    own.has_zero_window = segment.window == 0;
    if !own.has_zero_window {
        return;
    }
    if segment.flags & (SYN | FIN) == 0 {
        own.zero_windows += 1;
    }
    // After the other side's FIN, the window is irrelevant to it.
    if peer.state != State::Closed && own.state != State::Reset {
        history.scaled(side, 'w', &mut own.counts.zero_windows);
    }
}

/// Adds letters for bytes that the other side acknowledged but that were not captured.
fn gaps(
    own: &TcpEndpoint,
    peer: &mut TcpEndpoint,
    side: Side,
    segment: &Segment,
    history: &mut History,
) {
    let limit = peer.fin_end.map(|end| end.wrapping_sub(1));
    let gaps = peer.stream.acknowledge(segment.acknowledgement, limit);
    if own.is_clean() && peer.is_clean() {
        for _ in 0..gaps {
            history.scaled(side, 'g', &mut peer.counts.gaps);
        }
    }
}

/// Applies a segment to the states.
fn change(own: &mut TcpEndpoint, peer: &mut TcpEndpoint, side: Side, segment: &Segment) {
    match own.state {
        State::Inactive => start(own, peer, side, segment),
        State::SynSent | State::SynAckSent => {
            if segment.has(FIN) {
                own.enter(State::Closed);
            }
            if segment.has(RST) {
                own.enter(State::Reset);
            }
        }
        State::Established | State::Partial => proceed(own, peer, segment),
        State::Closed => {
            // A side that has closed may reset what the other one still sends.
            if segment.has(RST) && peer.state != State::Closed {
                own.enter(State::Reset);
            }
        }
        State::Reset => {}
    }
}

/// Handles the first segments of a side, which start, join or refuse a connection.
fn start(own: &mut TcpEndpoint, peer: &mut TcpEndpoint, side: Side, segment: &Segment) {
    let is_originator = side == 0;
    if segment.has(SYN) {
        match (is_originator, segment.has(ACK)) {
            (true, true) => own.enter(State::SynAckSent),
            // The answer was captured before the SYN.
            (true, false) if peer.state == State::Established => own.enter(State::Established),
            (true, false) => own.enter(State::SynSent),
            (false, _) => {
                if peer.state == State::SynSent {
                    peer.enter(State::Established);
                }
                own.enter(State::Established);
            }
        }
    }
    if segment.has(FIN) {
        own.enter(State::Closed);
    }
    if segment.has(RST) {
        own.enter(State::Reset);
    }
    if own.state != State::Inactive {
        return;
    }
    if !is_originator && segment.payload == 0 && peer.state == State::SynSent {
        // Some hosts acknowledge a SYN before they answer it.
        return;
    }
    if segment.has(ACK) && peer.state == State::Established {
        // The SYN was not captured, but the answer to it was.
        own.enter(State::Established);
    } else {
        own.enter(State::Partial);
    }
}

/// Handles the segments of a side that already takes part in a connection.
fn proceed(own: &mut TcpEndpoint, peer: &mut TcpEndpoint, segment: &Segment) {
    let is_alone = own.state == State::Partial && peer.state == State::Inactive;
    if segment.has(SYN) && !segment.has(ACK) && is_alone {
        own.enter(State::SynSent);
    }
    if segment.has(FIN) && !segment.has(RST) {
        own.enter(State::Closed);
        if peer.state == State::Reset && peer.previous == State::Closed {
            // FIN followed by RST from the other side is a regular close.
            peer.enter(State::Closed);
        }
    }
    if segment.has(RST) {
        own.enter(State::Reset);
    }
}
