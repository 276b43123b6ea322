//! The answers of a live run's models, as counters.

use std::collections::BTreeMap;

use control::metrics::MetricSet;
use features::kernel::Answers;
use features::model::{ACTIONS, Model};

/// The counters of a run's models.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelCounters {
    pub(super) kernel: Option<KernelAnswers>,
    /// Rows that were written without a score.
    pub(super) unscored: Option<u64>,
}

/// The answers of the model in the kernel, under their names.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelAnswers {
    pub(super) asked: u64,
    /// Flows by class.
    pub(super) flows: BTreeMap<String, u64>,
    /// Packets by action.
    pub(super) packets: [u64; ACTIONS.len()],
    pub(super) replaced: u64,
}

impl ModelCounters {
    pub(super) fn add_to(&self, metrics: &mut MetricSet) {
        if let Some(unscored) = self.unscored {
            let help = "Rows that were written without a score.";
            metrics
                .counter("lowroad_features_unscored_rows_total", help)
                .sample(&[], unscored);
        }
        let Some(kernel) = &self.kernel else { return };
        let help = "Flows, by the class that the model in the kernel gave them.";
        let family = metrics.counter("lowroad_features_model_flows_total", help);
        for (class, flows) in &kernel.flows {
            family.sample(&[("class", class)], *flows);
        }
        let help = "Packets of flows with a class, by the action of the model.";
        let family = metrics.counter("lowroad_features_model_packets_total", help);
        for (action, packets) in ACTIONS.iter().zip(kernel.packets) {
            family.sample(&[("action", action)], packets);
        }
    }
}

impl KernelAnswers {
    pub(super) fn add(&mut self, model: &Model, answers: &Answers) {
        self.asked += answers.asked;
        for (class, flows) in model.classes.iter().zip(answers.flows) {
            *self.flows.entry(class.name.clone()).or_default() += flows;
        }
        for (sum, packets) in self.packets.iter_mut().zip(answers.packets) {
            *sum += packets;
        }
    }
}

#[cfg(test)]
mod tests {
    use control::metrics::Format;

    use super::*;

    #[test]
    fn counters_have_their_names() {
        let counters = ModelCounters {
            kernel: Some(KernelAnswers {
                asked: 5,
                flows: BTreeMap::from([("benign".to_owned(), 3), ("attack".to_owned(), 2)]),
                packets: [7, 8, 9, 10],
                replaced: 1,
            }),
            unscored: Some(4),
        };
        let page = |counters: &ModelCounters| {
            let mut metrics = MetricSet::new();
            counters.add_to(&mut metrics);
            metrics.encode(Format::Prometheus)
        };
        let text = page(&counters);
        for line in [
            "lowroad_features_unscored_rows_total 4",
            "lowroad_features_model_flows_total{class=\"attack\"} 2",
            "lowroad_features_model_flows_total{class=\"benign\"} 3",
            "lowroad_features_model_packets_total{action=\"pass\"} 7",
            "lowroad_features_model_packets_total{action=\"drop\"} 8",
            "lowroad_features_model_packets_total{action=\"sample\"} 9",
            "lowroad_features_model_packets_total{action=\"mark\"} 10",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let nothing = page(&ModelCounters::default());
        assert!(!nothing.contains("lowroad_features_"), "{nothing}");
    }
}
