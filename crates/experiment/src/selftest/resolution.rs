//! The smallest difference that a quick experiment would claim on this machine, from experiments whose arms are equal.

use std::sync::atomic::AtomicBool;

use anyhow::Result;

use super::Check;
use super::honesty::{SEED, summary_of};
use crate::catalog;

/// A machine that cannot tell a quarter apart is not worth measuring on.
const MAX_PCT: f64 = 25.0;

/// A quantity, the experiment that measures it, one of its arms and its metric.
struct Quantity {
    name: &'static str,
    experiment: &'static str,
    arm: &'static str,
    metric: &'static str,
}

const QUANTITIES: [Quantity; 2] = [
    Quantity {
        name: "delay",
        experiment: "relay-delay",
        arm: "recv",
        metric: "delay_p50",
    },
    Quantity {
        name: "CPU",
        experiment: "relay-cpu",
        arm: "recv",
        metric: "cpu_ns_per_delivery",
    },
];

pub(super) fn check(blocks: usize, stop: &AtomicBool) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for quantity in QUANTITIES {
        let arm = [quantity.arm.to_owned()];
        let plan = catalog::find(quantity.experiment)?;
        let mut plan = plan.narrowed(true, &arm, Some(blocks))?;
        plan.loads.truncate(1);
        let summary = summary_of(&plan, SEED, stop)?;
        let mut rows = summary.results.iter();
        let row = rows.find(|row| row.metric == quantity.metric && row.arm.ends_with("''"));
        let share = row.and_then(|row| row.detectable);
        checks.push(judge(quantity.name, blocks, share));
    }
    Ok(checks)
}

/// `share` is the smallest detectable difference, as a share of the baseline.
fn judge(quantity: &str, blocks: usize, share: Option<f64>) -> Check {
    let pct = share.map(|share| share * 100.0);
    let measured = pct.map_or_else(
        || "no difference of any size".to_owned(),
        |pct| format!("differences above {pct:.1} %"),
    );
    Check {
        resolves_pct: pct.map(|pct| (quantity.to_owned(), pct)),
        ..Check::new(
            &format!("resolution in {quantity}, {blocks} blocks"),
            &format!("at most {MAX_PCT} %"),
            measured,
            pct.is_some_and(|pct| pct <= MAX_PCT),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolution_passes_below_limit() {
        let good = judge("delay", 10, Some(0.041));
        assert!(good.passed);
        assert_eq!(good.measured, "differences above 4.1 %");
        assert_eq!(good.resolves_pct.unwrap().0, "delay");
        assert!(!judge("delay", 10, Some(0.3)).passed);
        let none = judge("CPU", 10, None);
        assert!(!none.passed && none.resolves_pct.is_none());
    }

    #[test]
    fn quantities_are_those_of_their_experiments() {
        for quantity in QUANTITIES {
            let plan = catalog::find(quantity.experiment).unwrap();
            assert!(plan.arms.iter().any(|arm| arm == quantity.arm));
            assert!(plan.primary.iter().any(|metric| metric == quantity.metric));
        }
    }
}
