//! Surveys a plan before anything runs: what would run on this machine, what would be skipped, and why.

use anyhow::Result;
use datapath::Missing;
use report::record::Skip;

use crate::bench::Requirements;
use crate::load::Load;
use crate::plan::Plan;
use crate::{catalog, schedule};

/// A plan as this machine would run it.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Without the arms and loads that cannot run here.
    pub plan: Plan,
    pub skipped: Vec<Skip>,
    /// Trials in all blocks, without further attempts at those that fail.
    pub trials: usize,
    /// About how long they take.
    pub seconds: f64,
}

impl Survey {
    /// Looks, without root and without changing anything. Without root, that is what is missing of
    /// the arms that need it.
    ///
    /// # Errors
    /// When nothing can be learnt of this machine.
    pub fn new(plan: &Plan) -> Result<Self> {
        Ok(Self::by(plan, catalog::requirements(plan)?.as_ref()))
    }

    /// As `new`, of a plan whose baseline can run here.
    pub(crate) fn runnable(plan: &Plan, requirements: &dyn Requirements) -> Result<Self> {
        let survey = Self::by(plan, requirements);
        if survey.plan.arms.contains(&plan.baseline) && survey.trials > 0 {
            return Ok(survey);
        }
        let skipped =
            |whose: &dyn Fn(&Skip) -> bool| survey.skipped.iter().find(|skip| whose(skip));
        let why = skipped(&|skip| skip.arm == plan.baseline)
            // Else the loads are: no other arm is why.
            .or_else(|| skipped(&|skip| !plan.arms.contains(&skip.arm)))
            .map_or_else(
                || "it was left out".to_owned(),
                |skip| format!("{}; {}", skip.reason, skip.remedy),
            );
        Err(crate::CannotRun(format!(
            "{}: the baseline {} cannot run here: {why}",
            plan.name, plan.baseline
        ))
        .into())
    }

    fn by(plan: &Plan, requirements: &dyn Requirements) -> Self {
        let mut plan = plan.clone();
        let mut skipped = Vec::new();
        let mut keep = |arm: String, load: Option<String>, found: Result<(), Missing>| match found {
            Ok(()) => true,
            Err(missing) => {
                skipped.push(Skip {
                    arm,
                    load,
                    reason: missing.what,
                    remedy: missing.remedy,
                });
                false
            }
        };
        plan.arms
            .retain(|arm| keep(arm.clone(), None, requirements.check(arm)));
        plan.loads
            .retain(|load| keep(load.label(), None, requirements.check_load(load)));
        for load in &plan.loads {
            for arm in &plan.arms {
                keep(
                    arm.clone(),
                    Some(load.label()),
                    requirements.applies(arm, load),
                );
            }
        }
        let trials = plan.blocks * slots(&plan, requirements, 0, 0).len();
        Self {
            seconds: plan.seconds_of(trials),
            plan,
            skipped,
            trials,
        }
    }

    /// The loads' names, as results print them.
    pub fn loads(&self) -> Vec<String> {
        self.plan.loads.iter().map(Load::label).collect()
    }
}

/// The trials of a block in their order: each arm under each load that it means anything under.
pub(crate) fn slots(
    plan: &Plan,
    requirements: &dyn Requirements,
    seed: u64,
    block: usize,
) -> Vec<schedule::Slot> {
    let baseline = plan
        .arms
        .iter()
        .position(|arm| *arm == plan.baseline)
        .unwrap_or_default();
    let (loads, arms) = (plan.loads.len(), plan.arms.len());
    let mut slots = schedule::block(seed, block, loads, arms, baseline);
    slots.retain(|slot| {
        requirements
            .applies(&plan.arms[slot.arm], &plan.loads[slot.load])
            .is_ok()
    });
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::Placement;

    /// A machine that lacks an arm, and something that every load needs.
    struct LimitedMachine;

    impl Requirements for LimitedMachine {
        fn check(&self, arm: &str) -> Result<(), Missing> {
            match arm {
                "tc" => Ok(()),
                _ => Err(Missing::new("no such arm", "another arm")),
            }
        }

        fn check_load(&self, _: &Load) -> Result<(), Missing> {
            Err(Missing::new("a program is missing", "install it"))
        }

        fn applies(&self, _: &str, _: &Load) -> Result<(), Missing> {
            Ok(())
        }

        fn datapath<'a>(&self, _: &'a str) -> Result<Option<&'a str>, Missing> {
            Ok(None)
        }

        fn applies_in(&self, _: &str, _: &Load, _: &Placement) -> Result<(), Missing> {
            Ok(())
        }
    }

    #[test]
    fn a_baseline_without_a_load_is_told_what_the_loads_lack() {
        let mut plan = catalog::find("relay-delay").unwrap();
        plan.arms = ["xdp", "tc"].map(str::to_owned).to_vec();
        for (baseline, wanted) in [
            ("tc", "a program is missing; install it"),
            ("xdp", "no such arm; another arm"),
        ] {
            plan.baseline = baseline.to_owned();
            let refused = Survey::runnable(&plan, &LimitedMachine)
                .unwrap_err()
                .to_string();
            assert!(
                refused.contains(&format!("{baseline} cannot run here: {wanted}")),
                "{refused}"
            );
        }
    }
}
