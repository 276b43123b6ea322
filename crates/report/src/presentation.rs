//! How a report presents arms: their colours, and what it explains about them. The experiment that writes a record
//! decides this, because a report knows no job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a record's header says about the presentation of arms. A record without it has grey arms and no explanations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Presentation {
    /// By arm. Other arms are grey.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub colours: BTreeMap<String, Colour>,
    /// The arm that polls instead of sleeping: the delay of the baseline is explained by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_polling: Option<String>,
    /// Arms whose work is softirq, which `ps` does not show. The first one that was measured is the example.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub softirq: Vec<String>,
}

impl Presentation {
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
