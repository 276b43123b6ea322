//! How reports present the arms of each job.

use report::presentation::{Colour, DelaySplit, Energy, Presentation};
use report::record::Header;

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

/// The arm that measures the bare link: without a relay, or with an XDP program that counts the frames of features and
/// drops them.
pub(crate) const FLOOR: &str = "floor";

/// Arms whose work is softirq, the first choice for an example first.
const SOFTIRQ: [&str; 4] = ["xdp", "tc", "xdp-flow", "xdp-generic"];

/// The arm of the relay that polls instead of sleeping.
const BUSY_POLLING: &str = "busy";

/// How reports present these arms of a job.
pub(crate) fn presentation(job: &str, arms: &[String]) -> Presentation {
    let runs = |arm: &str| arms.iter().any(|known| known == arm);
    let colours = COLOURS.into_iter().filter(|(arm, _)| runs(arm));
    let softirq = SOFTIRQ.into_iter().filter(|arm| runs(arm));
    Presentation {
        colours: colours
            .map(|(arm, colour)| (arm.to_owned(), colour))
            .collect(),
        floor: runs(FLOOR).then(|| FLOOR.to_owned()),
        delay_split: runs(BUSY_POLLING).then(delay_split),
        softirq: softirq.map(str::to_owned).collect(),
        energy: (job == "relay").then(energy),
    }
}

/// Completes the header of a record from before records kept its presentation, or a part of it.
pub fn complete_presentation(header: &mut Header) {
    let known = presentation(&header.job, &header.arms);
    header.presentation.complete(known);
}

/// A baseline that sleeps has to wake up. An arm that polls has the work alone.
fn delay_split() -> DelaySplit {
    DelaySplit {
        metric: "delay_p50".to_owned(),
        arm: BUSY_POLLING.to_owned(),
        first: "{amount} of {baseline}'s delay is waking up ({baseline} minus {arm})".to_owned(),
        second: "{amount} is work ({arm} minus {floor})".to_owned(),
    }
}

/// The energy of the relay's deliveries.
fn energy() -> Energy {
    Energy {
        beside: "cpu_ns_per_delivery".to_owned(),
        metric: "energy_uj_per_delivery".to_owned(),
        each: "delivery".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presentation_of_an_older_record_is_completed() {
        let arms = ["recv", "busy", "xdp", "floor"].map(str::to_owned);
        let whole = presentation("relay", &arms);
        assert!(whole.floor.is_some() && whole.delay_split.is_some() && whole.energy.is_some());
        let older = r#"{"colours":{"recv":"teal"},"busy_polling":"busy","softirq":["xdp"]}"#;
        let mut older: Presentation = serde_json::from_str(older).unwrap();
        older.complete(whole.clone());
        assert_eq!(older.colours["recv"], Colour::Teal);
        let mut oldest = Presentation::default();
        oldest.complete(whole.clone());
        assert_eq!(oldest, whole);
        older.colours = whole.colours.clone();
        assert_eq!(older, whole);
    }
}
