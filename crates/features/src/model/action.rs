//! A model's classes, and the kernel's actions for their packets.

use serde::{Deserialize, Serialize};

/// A class of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Entry", into = "Entry")]
pub struct Class {
    pub name: String,
    pub action: Action,
}

/// The action for a flow's packets once its class is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// The packets pass.
    #[default]
    Pass,
    Drop,
    /// One in `one_in` packets passes, and the others are dropped.
    Sample {
        one_in: u16,
    },
    /// The packets pass with this DSCP.
    Mark {
        dscp: u8,
    },
}

/// All names, in the order of `enum tree_action`.
pub const ACTIONS: [&str; 4] = ["pass", "drop", "sample", "mark"];

impl Action {
    /// The index in `ACTIONS`.
    pub fn number(self) -> usize {
        match self {
            Self::Pass => 0,
            Self::Drop => 1,
            Self::Sample { .. } => 2,
            Self::Mark { .. } => 3,
        }
    }

    pub fn name(self) -> &'static str {
        ACTIONS[self.number()]
    }
}

/// The form in files.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    action: ActionName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    one_in: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dscp: Option<u8>,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ActionName {
    #[default]
    Pass,
    Drop,
    Sample,
    Mark,
}

impl TryFrom<Entry> for Class {
    type Error = String;

    fn try_from(entry: Entry) -> Result<Self, String> {
        let action = match (entry.action, entry.one_in, entry.dscp) {
            (ActionName::Pass, None, None) => Action::Pass,
            (ActionName::Drop, None, None) => Action::Drop,
            (ActionName::Sample, Some(one_in @ 1..), None) => Action::Sample { one_in },
            (ActionName::Mark, None, Some(dscp @ 0..64)) => Action::Mark { dscp },
            _ => {
                return Err(format!(
                    "class {}: sample has one_in, from 1 to 65535, mark has dscp, from 0 to 63, pass and drop have neither",
                    entry.name
                ));
            }
        };
        let name = entry.name;
        Ok(Self { name, action })
    }
}

impl From<Class> for Entry {
    fn from(class: Class) -> Self {
        let (action, one_in, dscp) = match class.action {
            Action::Pass => (ActionName::Pass, None, None),
            Action::Drop => (ActionName::Drop, None, None),
            Action::Sample { one_in } => (ActionName::Sample, Some(one_in), None),
            Action::Mark { dscp } => (ActionName::Mark, None, Some(dscp)),
        };
        Self {
            name: class.name,
            action,
            one_in,
            dscp,
        }
    }
}
