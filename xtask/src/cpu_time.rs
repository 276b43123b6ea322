//! The CPU time of a process and of its children, as proc_pid_stat(5) describes it.

use std::ops::Range;
use std::time::Duration;

/// Linux reports ticks of this length to userspace on every architecture that lowroad supports.
const TICK: Duration = Duration::from_millis(10);
/// The fields `utime` to `cstime`, counted from the first one behind the name.
const OWN_AND_CHILDREN: Range<usize> = 11..15;
/// The fields `cutime` and `cstime`.
const CHILDREN: Range<usize> = 13..15;

/// The time of a process and of the children that it has waited for.
pub(crate) fn own_and_children(stat: &str) -> Option<Duration> {
    sum(stat, OWN_AND_CHILDREN)
}

/// The time of the children that a process has waited for, and of theirs.
pub(crate) fn children(stat: &str) -> Option<Duration> {
    sum(stat, CHILDREN)
}

fn sum(stat: &str, fields: Range<usize>) -> Option<Duration> {
    // The name is in parentheses, and may contain both spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let rest: Vec<&str> = rest.split_whitespace().collect();
    let ticks = rest
        .get(fields)?
        .iter()
        .map(|field| field.parse::<u32>().ok());
    Some(TICK * ticks.sum::<Option<u32>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_a_process_and_of_its_children_is_read() {
        let stat = "7 (a ) b) Z 1 7 7 0 -1 4227084 0 0 0 0 1 2 250 50 20 0 1 0 99";
        assert_eq!(own_and_children(stat), Some(Duration::from_millis(3030)));
        assert_eq!(children(stat), Some(Duration::from_secs(3)));
        assert_eq!(own_and_children("7 (a) S 1"), None);
        assert_eq!(children("7 (a) S 1"), None);
    }
}
