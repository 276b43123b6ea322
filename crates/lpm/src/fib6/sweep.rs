//! Nested prefixes as the ranges of addresses that have one answer.

use crate::Prefix6;

/// From this address on, up to the next step, this is the answer.
pub(super) type Step = (u128, u16);

/// Writes to `steps` the answers in `region`, given the prefixes within in order, a later one of
/// two equal ones counting, and the answer where there is none of them.
pub(super) fn sweep(
    region: Prefix6,
    outside: u16,
    prefixes: impl Iterator<Item = (Prefix6, u16)>,
    steps: &mut Vec<Step>,
) {
    steps.clear();
    steps.push((region.first(), outside));
    let mut open: Vec<Step> = Vec::new();
    for (prefix, answer) in prefixes {
        close(&mut open, outside, steps, |last| last < prefix.first());
        step(steps, prefix.first(), answer);
        open.push((prefix.last(), answer));
    }
    close(&mut open, outside, steps, |last| last < region.last());
}

/// Goes back to the enclosing prefix's answer after each one that has ended.
fn close(open: &mut Vec<Step>, outside: u16, steps: &mut Vec<Step>, ended: impl Fn(u128) -> bool) {
    while let Some((last, _)) = open.pop_if(|&mut (last, _)| ended(last)) {
        let enclosing = open.last().map_or(outside, |&(_, answer)| answer);
        step(steps, last + 1, enclosing);
    }
}

/// The last of several steps at one address counts; a step that changes nothing is left out.
fn step(steps: &mut Vec<Step>, at: u128, answer: u16) {
    if steps.last().is_some_and(|&(before, _)| before == at) {
        steps.pop();
    }
    if steps.last().is_none_or(|&(_, before)| before != answer) {
        steps.push((at, answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(outside: u16, prefixes: &[(&str, u16)]) -> Vec<Step> {
        let mut steps = Vec::new();
        let prefixes = prefixes
            .iter()
            .map(|&(text, answer)| (text.parse().unwrap(), answer));
        sweep(
            "2001:db8::/32".parse().unwrap(),
            outside,
            prefixes,
            &mut steps,
        );
        let base = 0x2001_0db8 << 96;
        steps
            .iter()
            .map(|&(at, answer)| ((at - base) >> 80, answer))
            .collect()
    }

    #[test]
    fn nests() {
        let prefixes = [
            ("2001:db8::/36", 1),
            ("2001:db8::/48", 2),
            ("2001:db8:1::/48", 1),
            ("2001:db8:2::/48", 3),
            ("2001:db8:fff::/48", 4),
            ("2001:db8:ffff::/48", 5),
        ];
        let steps = [
            (0, 2),
            (1, 1),
            (2, 3),
            (3, 1),
            (0xfff, 4),
            (0x1000, 9),
            (0xffff, 5),
        ];
        assert_eq!(swept(9, &prefixes), steps);
    }

    #[test]
    fn the_later_of_two_equal_ones_counts() {
        assert_eq!(
            swept(0, &[("2001:db8::/48", 1), ("2001:db8::/48", 2)]),
            [(0, 2), (1, 0)]
        );
        assert_eq!(swept(0, &[]), [(0, 0)]);
        assert_eq!(swept(0, &[("2001:db8::/32", 7)]), [(0, 7)]);
    }
}
