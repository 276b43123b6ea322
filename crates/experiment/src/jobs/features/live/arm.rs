//! The program of each arm: a datapath, or a datapath with its own settings.

use super::tree::{TREES, Tree};

/// Arms that are `xdp-ringbuf` with one of its wake-up settings.
const WAKEUPS: [(&str, &str); 6] = [
    ("wakeup-adaptive", "adaptive"),
    ("wakeup-every", "every"),
    ("wakeup-1ms", "1ms"),
    ("wakeup-5ms", "5ms"),
    ("wakeup-20ms", "20ms"),
    ("wakeup-100ms", "100ms"),
];

/// The names of arms that are more than their datapath.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let wakeups = WAKEUPS.iter().map(|(name, _)| *name);
    wakeups.chain(TREES.iter().map(|(name, _)| *name))
}

/// The datapath of an arm, and what else it is told.
pub(super) fn of(arm: &str) -> (&str, Vec<String>) {
    match WAKEUPS.iter().find(|(name, _)| *name == arm) {
        Some((_, when)) => {
            let options = vec!["--wakeup".to_owned(), (*when).to_owned()];
            ("xdp-ringbuf", options)
        }
        None if Tree::of(arm).is_some() => ("xdp-flow", Vec::new()),
        None => (arm, Vec::new()),
    }
}

/// Whether an arm captures with a packet socket.
pub(super) fn is_socket(arm: &str) -> bool {
    ["recv", "tpacket"].contains(&of(arm).0)
}

#[cfg(test)]
mod tests {
    use features::live::datapaths;

    use super::*;

    #[test]
    fn every_arm_is_a_datapath_that_there_is() {
        let datapaths = datapaths();
        for arm in names() {
            let (datapath, options) = of(arm);
            assert!(
                datapaths.iter().any(|path| path.name() == datapath),
                "{arm}"
            );
            assert_ne!(options.is_empty(), Tree::of(arm).is_none(), "{arm}");
        }
        assert_eq!(of("recv"), ("recv", Vec::new()));
        assert!(is_socket("tpacket") && !is_socket("wakeup-1ms"));
    }
}
