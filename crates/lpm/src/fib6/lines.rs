//! Steps made into lines: how many bits choose a line so that each has few enough bounds, and what is
//! in it.

use std::sync::atomic::{AtomicU16, Ordering};

use super::kernel::Search;
use super::trie::{ANSWERS, BOUNDS, LINE};

/// An answer for `x`, bits 32..48 of an address, and those above it up to the next mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) x: u32,
    pub(super) answer: u16,
}

/// As many parts as a line of /44s need: 16 values of `x`, hence at most 15 bounds.
const MAX_BITS: u32 = 12;

/// The content of one of the `2^bits` parts of a /32.
pub(super) struct Part<'a> {
    /// The answer at its start.
    pub(super) first: u16,
    /// The marks after its start.
    pub(super) bounds: &'a [Mark],
}

/// Parts `from..from + count` of `2^bits`; the first mark is at or before the first part.
pub(super) fn parts(
    marks: &[Mark],
    bits: u32,
    from: u32,
    count: u32,
) -> impl Iterator<Item = Part<'_>> {
    let width = 16 - bits;
    let mut at = 0;
    (from..from + count).map(move |part| {
        while marks
            .get(at + 1)
            .is_some_and(|mark| mark.x <= part << width)
        {
            at += 1;
        }
        let rest = &marks[at + 1..];
        let inside = rest.iter().take_while(|mark| mark.x < (part + 1) << width);
        Part {
            first: marks[at].answer,
            bounds: &rest[..inside.count()],
        }
    })
}

/// The fewest bits, from `bits` on, for which a line holds each part's bounds.
pub(super) fn min_bits(marks: &[Mark], bits: u32) -> u32 {
    (bits..MAX_BITS)
        .find(|&bits| fits(marks, bits))
        .unwrap_or(MAX_BITS)
}

fn fits(marks: &[Mark], bits: u32) -> bool {
    let width = 16 - bits;
    let mut part = u32::MAX;
    let mut count = 0;
    marks[1..]
        .iter()
        .filter(|mark| mark.x & ((1 << width) - 1) != 0)
        .all(|mark| {
            count = if mark.x >> width == part {
                count + 1
            } else {
                1
            };
            part = mark.x >> width;
            count <= BOUNDS
        })
}

/// Writes a line. A bound is kept as the number before it, so that one that is not there, the
/// largest number, is below no `x`.
pub(super) fn write(line: &[AtomicU16], part: &Part<'_>) {
    let bounds = part.bounds.iter().map(|mark| low(mark.x) - 1);
    let bounds = bounds.chain(std::iter::repeat(u16::MAX));
    let answers = std::iter::once(part.first).chain(part.bounds.iter().map(|mark| mark.answer));
    let answers = answers.chain(std::iter::repeat(0));
    for (cell, number) in line[..ANSWERS].iter().zip(bounds) {
        cell.store(number, Ordering::Relaxed);
    }
    for (cell, number) in line[ANSWERS..].iter().zip(answers) {
        cell.store(number, Ordering::Relaxed);
    }
}

/// The answer of a line for `x`.
#[inline(always)]
pub(super) fn answer(line: &[AtomicU16; LINE], x: u16) -> u16 {
    let bounds = line[..BOUNDS].iter();
    let below = bounds
        .map(|bound| usize::from(bound.load(Ordering::Relaxed) < x))
        .sum::<usize>();
    line[ANSWERS + below % ANSWERS].load(Ordering::Relaxed)
}

/// The search that every machine can do.
pub(super) struct Scalar;

impl Search for Scalar {
    #[inline(always)]
    fn answer(&self, line: &[AtomicU16; LINE], x: u16) -> u16 {
        answer(line, x)
    }

    fn prefetch(&self, _: &[AtomicU16; LINE]) {}
}

fn low(x: u32) -> u16 {
    (x & 0xffff) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_answers_as_its_marks() {
        let marks: Vec<_> = (0..16u16)
            .map(|at| Mark {
                x: u32::from(at) * 3,
                answer: 100 + at,
            })
            .collect();
        assert_eq!(min_bits(&marks, 0), 0);
        let line = [const { AtomicU16::new(0xdead) }; 32];
        write(&line, &parts(&marks, 0, 0, 1).next().unwrap());
        for x in 0..=u16::MAX {
            assert_eq!(answer(&line, x), 100 + (x / 3).min(15));
        }
    }

    #[test]
    fn crowded_parts_need_more_bits() {
        let mark = |x: u32| Mark {
            x,
            answer: (x & 1) as u16,
        };
        let mut marks: Vec<_> = (0..17).map(mark).collect();
        assert_eq!(min_bits(&marks, 0), 12);
        marks.extend((17..65536).map(mark));
        assert_eq!(min_bits(&marks, 3), 12);
        let all: Vec<_> = parts(&marks, 12, 4090, 6)
            .map(|part| (part.first, part.bounds.len()))
            .collect();
        assert_eq!(all, [(0, 15); 6]);
    }

    #[test]
    fn parts_without_a_bound_go_on() {
        let marks = [
            Mark { x: 0, answer: 7 },
            Mark {
                x: 0x8001,
                answer: 8,
            },
        ];
        let all: Vec<_> = parts(&marks, 2, 0, 4)
            .map(|part| (part.first, part.bounds.len()))
            .collect();
        assert_eq!(all, [(7, 0), (7, 0), (7, 1), (8, 0)]);
    }
}
