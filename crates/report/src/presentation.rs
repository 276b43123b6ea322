//! How a report presents arms: their colours, the duties of some of them, and what it explains about them. The
//! experiment that writes a record decides this, because a report knows no job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The presentation of arms in a record's header. A record without it has grey arms, no floor and no explanations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Presentation {
    /// By arm. Other arms are grey.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub colours: BTreeMap<String, Colour>,
    /// The arm that measures the bare link. Figures show it as a line, sentences do not compare it, and `added_NAME` is
    /// NAME less its value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_split: Option<DelaySplit>,
    /// Arms whose work is softirq, which `ps` does not show. The first one that was measured is the example.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub softirq: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
}

/// The two parts of the baseline's delay. Another arm and the floor separate them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelaySplit {
    /// The metric that is split. The first question that asks for it first has the explanation.
    pub metric: String,
    /// The arm whose delay ends the first part and begins the second.
    pub arm: String,
    /// The words of the first part: what the baseline takes beyond the arm. `{amount}`, `{baseline}` and `{arm}` are
    /// replaced.
    pub first: String,
    /// The words of the second part: what the arm takes beyond the floor. `{amount}`, `{arm}` and `{floor}` are replaced.
    pub second: String,
}

/// The energy of the machine, which a report states beside a cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Energy {
    /// The cost. Questions that ask for it first have the energy.
    pub beside: String,
    /// The metric of the energy, in microjoules.
    pub metric: String,
    /// The unit of work that the energy is divided by: `delivery`.
    pub each: String,
}

impl Presentation {
    /// Takes from another presentation what this one lacks.
    pub fn complete(&mut self, other: Self) {
        if self.colours.is_empty() {
            self.colours = other.colours;
        }
        if self.softirq.is_empty() {
            self.softirq = other.softirq;
        }
        self.floor = self.floor.take().or(other.floor);
        self.delay_split = self.delay_split.take().or(other.delay_split);
        self.energy = self.energy.take().or(other.energy);
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The colour of an arm, and with it a marker and a dash. Warm colours are for userspace, cool ones for the kernel,
/// violet for what lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Colour {
    Orange,
    Amber,
    Pink,
    Brown,
    Violet,
    Teal,
    Blue,
}
