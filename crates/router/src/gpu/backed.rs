//! A device with this machine's CPUs behind it: they hold the same tables, say what next hops stand for, and
//! decide when the device cannot any more, if that is wanted.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use lpm::{NextHop, Prefix4, Prefix6};
use serde::Serialize;

use super::{CaughtUp, Gpu, Lists, OnDevice};
use crate::cpu::{self, Hops, Lookup, Tables};
use crate::engine::{Answers, Contents, Engine, Function, Headers, Processor};
use crate::forward::{Compiler, Family, Forwarding, Plane, Rest};
use crate::image::Stored;
use crate::rules::{Hits, RuleSet};

/// Which device, if any, and what is behind it.
#[derive(Clone, Debug)]
pub struct Options {
    pub cpu: cpu::Options,
    pub device: Option<super::Options>,
    /// CPUs go on where the device fails, runs out of memory, or refuses tables or kernels.
    pub fallback: bool,
}

/// Routes and rules on a device, and on CPUs.
#[derive(Debug)]
pub struct Backed {
    tables: Tables,
    gpu: Option<Gpu>,
    standby: Arc<Standby>,
}

/// Decides by the device, or by the CPU that calls, for one thread.
#[derive(Debug)]
pub struct Decider {
    lookup: Lookup,
    device: Option<OnDevice>,
    standby: Arc<Standby>,
}

/// Rules as both look them up.
#[derive(Debug)]
pub struct Both {
    cpu: cpu::Lists,
    gpu: Option<Lists>,
}

/// What CPUs did in a device's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fallen {
    /// The device's last words.
    pub why: String,
    pub batches: u64,
    pub packets: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Cpu(#[from] cpu::Error),
    #[error(transparent)]
    Device(#[from] super::Error),
}

#[derive(Debug, Default)]
struct Standby {
    wanted: bool,
    why: OnceLock<String>,
    batches: AtomicU64,
    packets: AtomicU64,
}

impl Engine for Backed {
    type Options = Options;
    type Processor = Decider;

    fn setup(contents: Contents, options: &Options) -> Result<Self, Error> {
        Self::new(contents, None, options)
    }

    fn processor(&self, function: Function) -> Result<Decider, Error> {
        let device = self.device().map(|gpu| gpu.processor(function));
        Ok(Decider {
            lookup: self.tables.processor(function)?,
            device: self.standby.unless_lost(device)?,
            standby: Arc::clone(&self.standby),
        })
    }
}

impl Backed {
    /// As [`Engine::setup`], with the arrays of an image, whose routes are those of `contents`.
    ///
    /// # Errors
    /// As `setup`; content that no table has.
    pub fn restore(image: &Stored, contents: Contents, options: &Options) -> Result<Self, Error> {
        Self::new(contents, Some(image), options)
    }

    fn new(contents: Contents, image: Option<&Stored>, options: &Options) -> Result<Self, Error> {
        let standby = Standby {
            wanted: options.fallback,
            ..Standby::default()
        };
        let gpu = options.device.as_ref().map(|device| match image {
            Some(image) => Gpu::restore(image, contents.clone(), device),
            None => Gpu::setup(contents.clone(), device),
        });
        Ok(Self {
            gpu: standby.unless_lost(gpu)?,
            tables: match image {
                Some(image) => Tables::restore(image, contents, &options.cpu)?,
                None => Tables::setup(contents, &options.cpu)?,
            },
            standby: Arc::new(standby),
        })
    }

    /// Bytes of the structures for routes and for rules, of the device as long as it decides.
    pub fn bytes(&self) -> (usize, usize) {
        let gpu = self.device().map(Gpu::bytes);
        gpu.unwrap_or_else(|| self.tables.bytes())
    }

    /// What makes lookups slow, in words; nothing for ordinary tables.
    pub fn warnings(&self) -> Vec<String> {
        self.tables.warnings()
    }

    /// How often each rule in force matched, wherever; without what a device that was lost had not told.
    pub fn hits(&self) -> [Hits; 2] {
        let mut all = self.tables.hits();
        if let Some(gpu) = &self.gpu {
            for (hits, on_device) in all.iter_mut().zip(gpu.hits()) {
                hits.merge(&on_device);
            }
        }
        all
    }

    /// What CPUs did in the device's place, if it was lost.
    pub fn fallen(&self) -> Option<Fallen> {
        let why = self.standby.why.get()?;
        Some(Fallen {
            why: why.clone(),
            batches: self.standby.batches.load(Ordering::Relaxed),
            packets: self.standby.packets.load(Ordering::Relaxed),
        })
    }

    /// What changes of routes have cost batches on the device.
    pub fn caught_up(&self) -> Option<CaughtUp> {
        self.gpu.as_ref().map(Gpu::caught_up)
    }

    /// What next hops stand for now.
    pub fn hops(&self) -> Arc<Hops> {
        self.tables.hops()
    }

    /// What has the tables on the device, until that is lost; none where there was none.
    pub fn device(&self) -> Option<&Gpu> {
        self.gpu.as_ref().filter(|_| !self.standby.is_lost())
    }

    /// A change of the device's tables; nothing where there is none, or none any more.
    fn change(
        &mut self,
        change: impl FnOnce(&mut Gpu) -> Result<(), super::Error>,
    ) -> Result<(), Error> {
        let lost = self.standby.is_lost();
        let changed = self.gpu.as_mut().filter(|_| !lost).map(change);
        self.standby.unless_lost(changed)?;
        Ok(())
    }
}

impl Decider {
    /// What the next hops of the last batch stood for when it was looked up.
    pub fn hops(&self) -> &Hops {
        self.lookup.hops()
    }

    /// Whether the device has decided.
    fn by_device(&mut self, headers: &Headers, answers: &mut Answers) -> Result<bool, Error> {
        if self.standby.is_lost() {
            self.device = None;
        }
        let Some(device) = &mut self.device else {
            return Ok(false);
        };
        let decided = if device.function().routes() {
            self.lookup
                .while_hops_hold(|| device.process_batch(headers, answers))
        } else {
            device.process_batch(headers, answers)
        };
        Ok(self.standby.unless_lost(Some(decided))?.is_some())
    }
}

impl Processor for Decider {
    type Error = Error;

    fn function(&self) -> Function {
        self.lookup.function()
    }

    fn reads_frames(&self) -> bool {
        self.device.as_ref().is_some_and(Processor::reads_frames)
    }

    fn idle(&mut self) -> Result<(), Error> {
        let idle = self.device.as_mut().map(Processor::idle);
        self.standby.unless_lost(idle)?;
        Ok(())
    }

    fn process_batch(&mut self, headers: &Headers, answers: &mut Answers) -> Result<(), Error> {
        if self.by_device(headers, answers)? {
            return Ok(());
        }
        if self.standby.is_lost() {
            let packets = headers.len() as u64;
            self.standby.batches.fetch_add(1, Ordering::Relaxed);
            self.standby.packets.fetch_add(packets, Ordering::Relaxed);
        }
        let Ok(()) = self.lookup.process_batch(headers, answers);
        Ok(())
    }
}

impl Standby {
    fn is_lost(&self) -> bool {
        self.why.get().is_some()
    }

    /// What a device came to; nothing of one that is lost, where CPUs are to go on.
    fn unless_lost<T>(
        &self,
        asked: Option<Result<T, super::Error>>,
    ) -> Result<Option<T>, super::Error> {
        match asked {
            Some(Err(error)) if self.wanted && is_loss(&error) => {
                let mut first = false;
                self.why.get_or_init(|| {
                    first = true;
                    error.to_string()
                });
                if first {
                    tracing::error!("{error}: CPUs decide from now on");
                }
                Ok(None)
            }
            Some(asked) => asked.map(Some),
            None => Ok(None),
        }
    }
}

/// Whether a device that was there is of no more use; not what is wrong with what was asked for.
fn is_loss(error: &super::Error) -> bool {
    use ::gpu::Error as Device;
    matches!(
        error,
        super::Error::Device(Device::Failed { .. } | Device::Memory { .. } | Device::Build { .. })
    )
}

impl Plane for Backed {
    type Error = Error;
    type Compiled = Both;

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        self.change(|gpu| gpu.route4(prefix, hop))?;
        Ok(self.tables.route4(prefix, hop)?)
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        self.change(|gpu| gpu.route6(prefix, hop))?;
        Ok(self.tables.route6(prefix, hop)?)
    }

    fn next_hop(&mut self, family: Family, hop: NextHop, to: &Forwarding) -> Result<(), Error> {
        Ok(self.tables.next_hop(family, hop, to)?)
    }

    fn compiler(&self) -> Compiler<Both, Error> {
        let cpu = self.tables.compiler();
        let gpu = self.device().map(Plane::compiler);
        let standby = Arc::clone(&self.standby);
        Box::new(move |rules: &RuleSet| {
            Ok(Both {
                cpu: cpu(rules)?,
                gpu: standby.unless_lost(gpu.map(|compile| compile(rules)))?,
            })
        })
    }

    fn enforce(&mut self, both: Both) -> Result<Rest, Error> {
        let on_device = match (&mut self.gpu, both.gpu) {
            (Some(gpu), Some(lists)) => Some(gpu.enforce(lists)?),
            _ => None,
        };
        let on_cpus = self.tables.enforce(both.cpu)?;
        Ok(Box::new(move || {
            on_cpus();
            if let Some(rest) = on_device {
                rest();
            }
        }))
    }
}
