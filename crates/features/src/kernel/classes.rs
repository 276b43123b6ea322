//! The class names for the kernel's records. A record holds a class number and the generation of its model, because the
//! model may have been replaced before the record is read.

use std::collections::{HashMap, HashSet};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::skel::flow::types;
use crate::flow::Classification;
use crate::model::{ACTIONS, Action};

/// The models of this process. There can be several, because several interfaces may be captured at once.
static MODELS: LazyLock<Mutex<Models>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
struct Models {
    /// The generation of the latest model.
    latest: u16,
    /// The class names by generation.
    classes: HashMap<u16, Vec<&'static str>>,
    /// Interned names. They are leaked, so interning keeps the leak bounded when models are replaced often.
    names: HashSet<&'static str>,
}

/// Assigns a generation to a model that is about to be activated. Records refer to the model by it.
pub(super) fn register(classes: &[String]) -> u16 {
    let mut models = lock();
    let classes = classes.iter().map(|name| models.name(name)).collect();
    let generation = models.latest.checked_add(1).unwrap_or(1);
    models.latest = generation;
    models.classes.insert(generation, classes);
    generation
}

/// The classification in a flow's record, if a model was evaluated.
pub(super) fn classification(record: &types::flow) -> Option<Classification> {
    let class = usize::from(record.class.checked_sub(1)?);
    let models = lock();
    let classes = models.classes.get(&record.generation)?;
    Some(Classification {
        class: classes.get(class)?,
        action: ACTIONS.get(usize::from(record.action))?,
    })
}

/// The classification of a flow in two parts, the earlier part first. As in the kernel, an action is kept.
pub(super) fn join(
    earlier: Option<Classification>,
    later: Option<Classification>,
) -> Option<Classification> {
    let acts = |part: &Classification| part.action != Action::Pass.name();
    earlier.filter(acts).or(later).or(earlier)
}

impl Models {
    fn name(&mut self, name: &str) -> &'static str {
        if let Some(known) = self.names.get(name) {
            return known;
        }
        let name: &'static str = Box::leak(name.into());
        self.names.insert(name);
        name
    }
}

fn lock() -> MutexGuard<'static, Models> {
    MODELS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::skel::Plain;
    use super::*;

    fn record(generation: u16, class: u8, action: u8) -> Option<Classification> {
        let mut flow = types::flow::zeroed();
        flow.generation = generation;
        flow.class = class;
        flow.action = action;
        classification(&flow)
    }

    #[test]
    fn records_name_the_classes_of_their_own_model() {
        let [one, other] = [["benign", "scan"], ["benign", "flood"]]
            .map(|names| register(&names.map(str::to_owned)));
        let named = |class, action| Some(Classification { class, action });
        assert_eq!(record(one, 0, 0), None, "not asked");
        assert_eq!(record(one, 2, 1), named("scan", "drop"));
        assert_eq!(record(other, 2, 0), named("flood", "pass"));
        assert_eq!(record(other, 3, 0), None, "no such class");
        assert_eq!(record(0, 1, 0), None, "no such model");
    }

    #[test]
    fn of_two_parts_an_action_is_kept() {
        let named = |class, action| Some(Classification { class, action });
        let (benign, scan) = (named("benign", "pass"), named("scan", "drop"));
        assert_eq!(join(benign, scan), scan);
        assert_eq!(join(scan, benign), scan);
        assert_eq!(join(benign, None), benign);
        assert_eq!(join(None, benign), benign);
    }
}
