//! The history of a connection: one letter per kind of event, in the order of their first occurrence, like `history`
//! in Zeek's conn.log. Letters of the originator are upper case, letters of the responder are lower case.

/// The maximum length of a history. SYN, FIN and RST with changing sequence numbers would otherwise add letters
/// without end.
const MAX_LETTERS: usize = 100;
/// The maximum number of bytes that the letters occupy, because the buffer's capacity is doubled.
pub(super) const MAX_BYTES: usize = MAX_LETTERS.next_power_of_two();

/// The index of a side of a connection: 0 for the originator, 1 for the responder.
pub(super) type Side = usize;

/// Events that occur once per side in a history, or again for each different sequence number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// SYN, with or without ACK.
    Syn,
    Fin,
    Reset,
    /// FIN and RST in one segment.
    FinReset,
    /// SYN and one of FIN and RST in one segment.
    SynMixed,
    Data,
    Ack,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    letters: String,
    /// A bit for each event, by side.
    seen: [u8; 2],
}

impl History {
    /// The history of a connection whose first packet was sent by the responder.
    pub(super) fn flipped() -> Self {
        Self {
            letters: "^".to_owned(),
            ..Self::default()
        }
    }

    pub(super) fn letters(&self) -> &str {
        &self.letters
    }

    /// Adds the letter of an event unless the side already has it. Returns whether the side already had it.
    pub(super) fn once(&mut self, side: Side, event: Event, letter: char) -> bool {
        let bit = 1 << event as u8;
        let had = self.seen[side] & bit != 0;
        self.seen[side] |= bit;
        if !had {
            self.add(side, letter);
        }
        had
    }

    /// Counts an event, and adds its letter for the first one, the 10th, the 100th and so on.
    pub(super) fn scaled(&mut self, side: Side, letter: char, count: &mut u32) {
        *count = count.saturating_add(1);
        if is_power_of_ten(*count) {
            self.add(side, letter);
        }
    }

    pub(super) fn add(&mut self, side: Side, letter: char) {
        let letter = match side {
            0 => letter.to_ascii_uppercase(),
            _ => letter.to_ascii_lowercase(),
        };
        match self.letters.len() {
            ..MAX_LETTERS => self.letters.push(letter),
            MAX_LETTERS => self.letters.push('x'),
            _ => {}
        }
    }
}

/// A saturated count is not a power of ten.
fn is_power_of_ten(mut count: u32) -> bool {
    while count >= 10 && count.is_multiple_of(10) {
        count /= 10;
    }
    count == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_events_have_a_letter_for_each_power_of_ten() {
        let mut history = History::default();
        let mut count = 0;
        for expected in 1..=1000 {
            history.scaled(1, 't', &mut count);
            assert_eq!(count, expected);
        }
        assert_eq!(history.letters(), "tttt");
    }

    #[test]
    fn an_event_counts_once_for_each_side() {
        let mut history = History::flipped();
        let had = [(0, 'd'), (1, 'd'), (0, 'd')]
            .map(|(side, letter)| history.once(side, Event::Data, letter));
        assert_eq!(had, [false, false, true]);
        assert_eq!(history.letters(), "^Dd");
    }

    #[test]
    fn a_history_ends_with_an_x_where_its_room_ends() {
        let mut history = History::default();
        (0..1000).for_each(|_| history.add(0, 's'));
        let expected = format!("{}x", "S".repeat(MAX_LETTERS));
        assert_eq!(history.letters(), expected);
    }
}
