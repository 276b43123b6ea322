//! What the targets of routes make of decisions: engines know next hops by number only, and some of them lead nowhere.

use std::sync::Arc;

use router::engine::{Answers, Decision, Function, Headers, Processor, Verdict};
use router::routes::Target;

use crate::router::Targets;

/// The verdicts of next hops 1, 2, ... of each family; none where all of them forward.
#[derive(Clone, Debug)]
pub(super) struct Verdicts {
    v4: Arc<[Verdict]>,
    v6: Arc<[Verdict]>,
}

impl Verdicts {
    pub(super) fn new(targets: &Targets) -> Self {
        Self {
            v4: verdicts(&targets.v4),
            v6: verdicts(&targets.v6),
        }
    }

    /// A processor that decides by them, too.
    pub(super) fn processor<P>(&self, processor: P) -> TargetProcessor<P> {
        let verdicts = self.clone();
        TargetProcessor {
            processor,
            verdicts,
        }
    }
}

fn verdicts(targets: &[Target]) -> Arc<[Verdict]> {
    let verdicts = targets.iter().map(Target::verdict);
    if verdicts.clone().all(|verdict| verdict == Verdict::Forward) {
        return Arc::default();
    }
    verdicts.collect()
}

#[derive(Clone, Debug)]
pub(super) struct TargetProcessor<P> {
    processor: P,
    verdicts: Verdicts,
}

impl<P: Processor> Processor for TargetProcessor<P> {
    type Error = P::Error;

    fn function(&self) -> Function {
        self.processor.function()
    }

    fn reads_frames(&self) -> bool {
        self.processor.reads_frames()
    }

    fn idle(&mut self) -> Result<(), P::Error> {
        self.processor.idle()
    }

    fn process_batch(&mut self, headers: &Headers, answers: &mut Answers) -> Result<(), P::Error> {
        self.processor.process_batch(headers, answers)?;
        apply(&self.verdicts.v4, &mut answers.v4);
        apply(&self.verdicts.v6, &mut answers.v6);
        Ok(())
    }
}

fn apply(verdicts: &[Verdict], answers: &mut [Decision]) {
    if verdicts.is_empty() {
        return;
    }
    for answer in answers {
        let hop = answer.hop();
        let at = usize::from(hop).checked_sub(1);
        let verdict = match (at.and_then(|at| verdicts.get(at)), answer.verdict()) {
            // A drop wins, also over a rule that leaves the packet to the kernel.
            (Some(Verdict::Drop), _) => Verdict::Drop,
            (Some(Verdict::Punt), Verdict::Forward) => Verdict::Punt,
            (_, decided) => decided,
        };
        *answer = Decision::new(verdict, hop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_by_route_or_rule_wins_then_the_kernel() {
        let targets = [
            Target::StandIn(1),
            Target::Blackhole,
            Target::Unreachable,
            Target::Prohibit,
            Target::Kernel,
        ];
        let verdicts = verdicts(&targets);
        let decided = |verdict, hop| {
            let mut answers = [Decision::new(verdict, hop)];
            apply(&verdicts, &mut answers);
            assert_eq!(answers[0].hop(), hop);
            answers[0].verdict()
        };
        use Verdict::{Drop, Forward, NoRoute, Punt};
        let forward = [0, 1, 2, 3, 4, 5, 6].map(|hop| decided(Forward, hop));
        assert_eq!(forward, [Forward, Forward, Drop, Drop, Drop, Punt, Forward]);
        let punt = [1, 2, 5].map(|hop| decided(Punt, hop));
        assert_eq!(punt, [Punt, Drop, Punt]);
        assert_eq!(decided(Drop, 5), Drop);
        assert_eq!(decided(NoRoute, 0), NoRoute);
    }
}
