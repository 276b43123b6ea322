//! How reports present the arms of each job.

use report::presentation::{Colour, Presentation};

/// Datapaths with the same name in several jobs look the same in all of them.
const COLOURS: [(&str, Colour); 7] = [
    ("recv", Colour::Orange),
    ("mmsg", Colour::Amber),
    ("gso", Colour::Pink),
    ("busy", Colour::Brown),
    ("af-xdp", Colour::Violet),
    ("tc", Colour::Teal),
    ("xdp", Colour::Blue),
];

/// Arms whose work is softirq, the first choice for an example first.
const SOFTIRQ: [&str; 4] = ["xdp", "tc", "xdp-flow", "xdp-generic"];

/// The arm of the relay that polls instead of sleeping.
const BUSY_POLLING: &str = "busy";

/// How reports present these arms. It also completes the header of a record from before records kept this.
pub fn presentation(arms: &[String]) -> Presentation {
    let runs = |arm: &str| arms.iter().any(|known| known == arm);
    let colours = COLOURS.into_iter().filter(|(arm, _)| runs(arm));
    let softirq = SOFTIRQ.into_iter().filter(|arm| runs(arm));
    Presentation {
        colours: colours
            .map(|(arm, colour)| (arm.to_owned(), colour))
            .collect(),
        busy_polling: runs(BUSY_POLLING).then(|| BUSY_POLLING.to_owned()),
        softirq: softirq.map(str::to_owned).collect(),
    }
}
