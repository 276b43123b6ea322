//! The line of a network card, as trials tell it: no goodput is above its rate, and no round trip below what frames
//! take on it.

use units::format::digits;

use crate::analysis::Analysis;
use crate::record::Trial;

/// Preamble, Ethernet header, checksum and the gap to the next frame, in bytes.
const AROUND: u64 = 8 + 14 + 4 + 12;

/// A card's rate and the largest packet that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    mbps: u64,
    mtu: u64,
}

impl Line {
    /// The line of the shown arms, if all those with a card have the same kind.
    pub(crate) fn of(
        analysis: &Analysis<'_>,
        load: &str,
        shown: &dyn Fn(&str) -> bool,
    ) -> Option<Self> {
        let trials = analysis.record.trials.iter();
        let trials = trials.filter(|trial| trial.load == load && shown(&trial.arm));
        let mut lines = trials.filter_map(Self::of_trial);
        let first = lines.next()?;
        lines.all(|other| other == first).then_some(first)
    }

    fn of_trial(trial: &Trial) -> Option<Self> {
        let number = |name: &str| trial.environment.get(name)?.as_u64();
        Some(Self {
            mbps: number("line.speed_mbps").filter(|mbps| *mbps > 0)?,
            mtu: number("line.mtu")?,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "below 2^52 Mb/s")]
    pub(crate) fn mbps(self) -> f64 {
        self.mbps as f64
    }

    /// The sentence below figures of goodput and round trips.
    pub(crate) fn says(self) -> String {
        let whole = self.mtu + AROUND;
        #[expect(clippy::cast_precision_loss, reason = "bytes of a frame")]
        let us = whole as f64 * 8.0 / self.mbps();
        format!(
            "The card's line rate is {} Mb/s: a full frame of {} B, {whole} B with what is around it, takes {} us \
             on the wire each way, and a cable about 5 ns for each metre.",
            self.mbps,
            self.mtu,
            digits(us)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_frame_takes_its_bytes_at_the_line_rate() {
        let said = |mbps, mtu| Line { mbps, mtu }.says();
        let gigabit = said(1000, 1500);
        assert!(
            gigabit.contains("1538 B") && gigabit.contains("takes 12.3 us"),
            "{gigabit}"
        );
        assert!(
            said(100_000, 9000).contains("takes 0.723 us"),
            "{}",
            said(100_000, 9000)
        );
    }
}
