//! Shows an experiment's progress: a bar on a terminal, else one plain line a block.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};

use experiment::Watch;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::record::{self, Header, Skip, Trial};

use crate::print;

/// The metric shown beside the bar, whichever of these a trial has.
const SHOWN: [(&str, &str); 4] = [
    ("delay_p50", "us"),
    ("deliveries_per_s", "/s"),
    ("cpu_ns_per_delivery", "ns"),
    ("subscriber_change_ms", "ms"),
];

/// Progress of one experiment on standard error.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    plain: bool,
    blocks: usize,
    flagged: usize,
    latest: BTreeMap<String, String>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let plain = !stderr().is_terminal();
        let target = if plain {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        Self {
            bar: ProgressBar::with_draw_target(None, target),
            plain,
            blocks: 0,
            flagged: 0,
            latest: BTreeMap::new(),
        }
    }

    fn line(&self, text: &str) {
        if self.plain {
            print::note(format_args!("{text}"));
        } else {
            self.bar.println(text);
        }
    }

    fn show(&self, block: usize) {
        let shown: Vec<_> = self
            .latest
            .iter()
            .map(|(arm, value)| format!("{arm} {value}"))
            .collect();
        let flagged = match self.flagged {
            0 => String::new(),
            count => format!("   flagged {count}"),
        };
        self.bar.set_message(format!(
            "block {block}/{}{flagged}   {}",
            self.blocks,
            shown.join("   ")
        ));
    }
}

impl Watch for Progress {
    fn begin(&mut self, header: &Header, trials: usize, seconds: f64) {
        self.blocks = header.blocks;
        self.line(&format!(
            "{}  {} arms x {} loads x {} blocks   this takes about {}   seed {}",
            header.experiment,
            header.arms.len(),
            header.loads.len(),
            header.blocks,
            span(seconds),
            header.seed
        ));
        for skip in &header.skipped {
            self.line(&format!("  {}", skip_line(skip)));
        }
        self.bar.set_length(trials as u64);
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {eta} left   {wide_msg}") {
            self.bar.set_style(style.progress_chars("##."));
        }
    }

    fn trial(&mut self, trial: &Trial, done: usize) {
        if let Some((value, unit)) = SHOWN
            .iter()
            .find_map(|(name, unit)| Some((trial.values.get(*name)?, unit)))
        {
            self.latest
                .insert(trial.arm.clone(), format!("{value:.1} {unit}"));
        }
        self.bar.set_position(done as u64);
        self.show(trial.block + 1);
    }

    fn block(&mut self, block: &[Trial], complete: usize, flagged: usize) {
        self.flagged = flagged;
        if self.plain {
            let flags = match record::flagged(block).first() {
                Some(trial) => format!("   flagged ({}: {})", trial.arm, trial.flags.join(", ")),
                None => String::new(),
            };
            self.line(&format!("block {complete}/{}{flags}", self.blocks));
        }
        self.show(complete);
    }
}

/// What does not run, why, and what to do.
pub(crate) fn skip_line(skip: &Skip) -> String {
    format!("skipped {}: {}   {}", skip.what(), skip.reason, skip.remedy)
}

/// Seconds as people say them.
pub(crate) fn span(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else if seconds < 7200.0 {
        format!("{:.0} min", seconds / 60.0)
    } else {
        format!("{:.1} h", seconds / 3600.0)
    }
}
