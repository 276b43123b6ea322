//! The active model in the kernel, and its answers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bpf::{Map, PerCpu};
use datapath::Error;
use libbpf_rs::{MapType, libbpf_sys};

use super::image::{CLASSES, Image};
use super::skel::flow::types;
use super::{classes, failed};
use crate::model::ACTIONS;
use crate::schema::Rules;

/// A model's answers since it was activated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The number of evaluations.
    pub asked: u64,
    /// Flows by their latest class.
    pub flows: [u64; CLASSES],
    /// Packets of classified flows by action, in the order of `model::ACTIONS`. A flow keeps its action when another
    /// model is activated.
    pub packets: [u64; ACTIONS.len()],
}

/// The model for a datapath that will be started. It can be replaced while the datapath runs.
#[derive(Debug)]
pub struct ModelSlot(Mutex<Slot>);

#[derive(Debug)]
struct Slot {
    image: Image,
    shadow: bool,
    /// Set when the datapath has started.
    models: Option<Models>,
    /// The rules for the datapath's flows, set when it has started.
    rules: Option<Rules>,
    /// The answers in datapaths that have ended. A datapath is restarted when its interface returns.
    past: Answers,
}

impl Answers {
    fn and(mut self, other: Self) -> Self {
        self.asked += other.asked;
        for (mine, theirs) in self.flows.iter_mut().zip(other.flows) {
            *mine += theirs;
        }
        for (mine, theirs) in self.packets.iter_mut().zip(other.packets) {
            *mine += theirs;
        }
        self
    }
}

impl ModelSlot {
    /// With `shadow`, actions are only counted, not applied.
    pub fn new(image: Image, shadow: bool) -> Self {
        Self(Mutex::new(Slot {
            image,
            shadow,
            models: None,
            rules: None,
            past: Answers::default(),
        }))
    }

    /// Replaces the model, and returns the answers of the previous one. Each packet sees either the old or the new
    /// model.
    pub fn put(&self, image: Image) -> Result<Answers, Error> {
        let mut slot = self.lock();
        if let Some(rules) = slot.rules {
            image.check_rules(rules)?;
        }
        slot.image = image;
        let Slot {
            image,
            shadow,
            models,
            past,
            ..
        } = &mut *slot;
        let before = match models {
            Some(models) => models.put(Some((image, *shadow)))?,
            None => Answers::default(),
        };
        Ok(std::mem::take(past).and(before))
    }

    /// The answers of the active model.
    pub fn answers(&self) -> Result<Answers, Error> {
        let slot = self.lock();
        let models = slot.models.as_ref();
        let answers = models.map_or(Ok(Answers::default()), Models::answers)?;
        Ok(slot.past.and(answers))
    }

    /// Activates the model in loaded programs whose flows are made by these rules.
    pub(crate) fn connect(&self, mut models: Models, rules: Rules) -> Result<(), Error> {
        let mut slot = self.lock();
        slot.image.check_rules(rules)?;
        slot.rules = Some(rules);
        models.put(Some((&slot.image, slot.shadow)))?;
        if let Some(ended) = slot.models.replace(models) {
            slot.past = slot.past.and(ended.answers()?);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The active model in loaded programs.
#[derive(Debug)]
pub(crate) struct Models {
    in_force: Map<u32, i32>,
    accounts: PerCpu<types::tree_account>,
    /// The index of the unused one of `accounts`.
    spare: u32,
    is_set: bool,
}

impl Models {
    pub(super) fn new(in_force: Map<u32, i32>, accounts: PerCpu<types::tree_account>) -> Self {
        Self {
            in_force,
            accounts,
            spare: 0,
            is_set: false,
        }
    }

    /// Replaces the model, and returns the answers of the previous one. They are final, because the kernel waits until
    /// no program uses that model any more.
    pub(super) fn put(&mut self, image: Option<(&Image, bool)>) -> Result<Answers, Error> {
        match image {
            Some((image, shadow)) => {
                self.reset(self.spare)?;
                let model = image.record(self.spare, shadow, classes::register(image.classes()));
                let map = map()?;
                map.set(&0, &model).map_err(failed("writing a model"))?;
                self.in_force
                    .set_descriptor(&0, &map)
                    .map_err(failed("putting a model in force"))?;
            }
            None if self.is_set => self
                .in_force
                .remove(&0)
                .map_err(failed("taking a model out of force"))?,
            None => {}
        }
        let before = std::mem::replace(&mut self.is_set, image.is_some());
        self.spare ^= 1;
        if before {
            self.read(self.spare)
        } else {
            Ok(Answers::default())
        }
    }

    /// The answers of the active model.
    pub(super) fn answers(&self) -> Result<Answers, Error> {
        if self.is_set {
            self.read(self.spare ^ 1)
        } else {
            Ok(Answers::default())
        }
    }

    fn read(&self, account: u32) -> Result<Answers, Error> {
        let sums = self.accounts.sum(account);
        let sums = sums.map_err(failed("reading a model's answers"))?;
        Ok(Answers {
            asked: sums.asked,
            flows: sums.flows,
            packets: sums.packets,
        })
    }

    fn reset(&self, account: u32) -> Result<(), Error> {
        let zeroed = self.accounts.zero(account);
        zeroed.map_err(failed("resetting a model's answers"))
    }
}

/// A map for one model: `struct model_map` of tree.h.
fn map() -> Result<Map<u32, types::model>, Error> {
    let options = libbpf_sys::bpf_map_create_opts::default();
    Map::create(MapType::Array, "model", 1, &options).map_err(failed("making room for a model"))
}
