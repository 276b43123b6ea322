//! Loads of the router.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Value;
use units::Span;

use super::forwarding;
use super::tables::{Table, Traffic};
use crate::bench::JobTrialSpec;
use crate::load::{JobLoad, JobMeasure, SharedSetUp, common_keys, option_words};

/// One trial of the router.
pub(super) type TrialSpec<'a> = JobTrialSpec<'a, Load>;

/// The option that sets the rate of updates. Without it, one update follows the other.
pub(super) const OFFERED_OPTION: &str = "offered";

/// The measures of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Lookups in a table that does not change.
    Lookup,
    /// Changes of a table while another thread looks up.
    Updates,
    /// How long a table takes to build, and how large it is.
    Build,
    /// Packets a second through a router, of all that can be sent.
    Forward,
    /// Packets that `lowroad router process` decides about, on CPUs or a device.
    Process,
}

impl JobMeasure for Measure {
    fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Updates => "updates",
            Self::Build => "build",
            Self::Forward => "forward",
            Self::Process => "process",
        }
    }

    fn windows(self) -> f64 {
        // The second is the pass that is checked, the account of CPU, or what is read before.
        2.0
    }
}

/// A load of the router: a table, and what is done with it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Load {
    pub(super) measure: Option<Measure>,
    /// The table to look up in.
    pub(super) table: Option<Table>,
    /// The keys to look up.
    pub(super) traffic: Option<Traffic>,
    /// Next hops of a table that has none.
    pub(super) next_hops: Option<u16>,
    /// A table of the user's own.
    pub(super) file: Option<PathBuf>,
    /// How many flows forwarded packets belong to.
    pub(super) flows: Option<usize>,
    pub(super) duration: Span,
    /// Options of forwarding, updates and processing.
    #[serde(default)]
    pub(super) options: BTreeMap<String, Value>,
}

impl JobLoad for Load {
    type Measure = Measure;

    common_keys!();

    fn shared_set_up(&self, measure: Measure) -> Option<SharedSetUp> {
        match measure {
            Measure::Forward => forwarding::shared_set_up(self),
            _ => None,
        }
    }

    /// `uniform 901899-prefixes`, `fw1 100k uniform`.
    fn label(&self) -> String {
        let table = self.table.iter().map(Table::to_string);
        let traffic = self.traffic.iter().map(Traffic::to_string);
        let hops = self.next_hops.iter().map(|hops| format!("hops={hops}"));
        let mut words: Vec<String> = match &self.table {
            Some(Table::Rules(_)) => table
                .chain(traffic.filter(|traffic| traffic != "rules"))
                .collect(),
            _ => traffic.chain(table).chain(hops).collect(),
        };
        words.extend(self.flows.map(|flows| format!("{flows}-flows")));
        words.extend((self.measure == Some(Measure::Build)).then(|| "build".to_owned()));
        words.extend(option_words(&self.options));
        words.join(" ")
    }
}
