//! A device with CPU fallback. The CPUs hold the same tables and the forwarding of next hops. If the option
//! is set, they decide when the device is lost.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use lpm::{NextHop, Prefix4, Prefix6};
use serde::Serialize;

use super::{DeviceProcessor, Gpu, Lists, UpdateCosts};
use crate::cpu::{self, Hops, Lookup, Tables};
use crate::engine::{Answers, Contents, Engine, Function, Headers, Processor};
use crate::forward::{Cleanup, Compiler, Family, Forwarding, Plane};
use crate::image::ImageFile;
use crate::rules::{Hits, RuleSet};

/// The device, if any, and the CPU engine.
#[derive(Clone, Debug)]
pub struct Options {
    pub cpu: cpu::Options,
    pub device: Option<super::Options>,
    /// Continue on CPUs if the device fails, runs out of memory, or refuses tables or kernels.
    pub fallback: bool,
}

/// Routes and rules on a device and on CPUs.
#[derive(Debug)]
pub struct FallbackTables {
    tables: Tables,
    gpu: Option<Gpu>,
    fallback: Arc<FallbackState>,
}

/// Processes one thread's batches on the device, or on the calling CPU.
#[derive(Debug)]
pub struct FallbackProcessor {
    lookup: Lookup,
    device: Option<DeviceProcessor>,
    fallback: Arc<FallbackState>,
}

/// Rules for the lookups of both.
#[derive(Debug)]
pub struct FallbackLists {
    cpu: cpu::Lists,
    gpu: Option<Lists>,
}

/// The work that CPUs did after the device was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FallbackStatus {
    /// The device's error.
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
struct FallbackState {
    wanted: bool,
    why: OnceLock<String>,
    batches: AtomicU64,
    packets: AtomicU64,
}

impl Engine for FallbackTables {
    type Options = Options;
    type Processor = FallbackProcessor;

    fn setup(contents: Contents, options: &Options) -> Result<Self, Error> {
        Self::new(contents, None, options)
    }

    fn processor(&self, function: Function) -> Result<FallbackProcessor, Error> {
        let device = self.device().map(|gpu| gpu.processor(function));
        Ok(FallbackProcessor {
            lookup: self.tables.processor(function)?,
            device: self.fallback.unless_lost(device)?,
            fallback: Arc::clone(&self.fallback),
        })
    }
}

impl FallbackTables {
    /// As [`Engine::setup`], with the arrays of an image, whose routes are those of `contents`.
    ///
    /// # Errors
    /// As `setup`; content that no table has.
    pub fn restore(
        image: &ImageFile,
        contents: Contents,
        options: &Options,
    ) -> Result<Self, Error> {
        Self::new(contents, Some(image), options)
    }

    fn new(
        contents: Contents,
        image: Option<&ImageFile>,
        options: &Options,
    ) -> Result<Self, Error> {
        let fallback = FallbackState {
            wanted: options.fallback,
            ..FallbackState::default()
        };
        let gpu = options.device.as_ref().map(|device| match image {
            Some(image) => Gpu::restore(image, contents.clone(), device),
            None => Gpu::setup(contents.clone(), device),
        });
        Ok(Self {
            gpu: fallback.unless_lost(gpu)?,
            tables: match image {
                Some(image) => Tables::restore(image, contents, &options.cpu)?,
                None => Tables::setup(contents, &options.cpu)?,
            },
            fallback: Arc::new(fallback),
        })
    }

    /// Bytes of the structures for routes and for rules: the device's until it is lost.
    pub fn bytes(&self) -> (usize, usize) {
        let gpu = self.device().map(Gpu::bytes);
        gpu.unwrap_or_else(|| self.tables.bytes())
    }

    /// Reasons for slow lookups; none for ordinary tables.
    pub fn warnings(&self) -> Vec<String> {
        self.tables.warnings()
    }

    /// How often each rule in force matched, on the device and on CPUs. Counts that a lost device had not
    /// reported are missing.
    pub fn hits(&self) -> [Hits; 2] {
        let mut all = self.tables.hits();
        if let Some(gpu) = &self.gpu {
            for (hits, on_device) in all.iter_mut().zip(gpu.hits()) {
                hits.merge(&on_device);
            }
        }
        all
    }

    /// The work that CPUs did since the device was lost; none if it was not.
    pub fn fallback_status(&self) -> Option<FallbackStatus> {
        let why = self.fallback.why.get()?;
        Some(FallbackStatus {
            why: why.clone(),
            batches: self.fallback.batches.load(Ordering::Relaxed),
            packets: self.fallback.packets.load(Ordering::Relaxed),
        })
    }

    /// Costs of updating routes on the device.
    pub fn update_costs(&self) -> Option<UpdateCosts> {
        self.gpu.as_ref().map(Gpu::update_costs)
    }

    /// The current forwarding of next hops.
    pub fn hops(&self) -> Arc<Hops> {
        self.tables.hops()
    }

    /// The device's engine, until the device is lost.
    pub fn device(&self) -> Option<&Gpu> {
        self.gpu.as_ref().filter(|_| !self.fallback.is_lost())
    }

    /// Changes the device's tables, if there is a device and it is not lost.
    fn change(
        &mut self,
        change: impl FnOnce(&mut Gpu) -> Result<(), super::Error>,
    ) -> Result<(), Error> {
        let lost = self.fallback.is_lost();
        let changed = self.gpu.as_mut().filter(|_| !lost).map(change);
        self.fallback.unless_lost(changed)?;
        Ok(())
    }
}

impl FallbackProcessor {
    /// The forwarding of next hops at the time of the last batch's lookup.
    pub fn hops(&self) -> &Hops {
        self.lookup.hops()
    }

    /// Processes a batch on the device. Returns whether it did.
    fn by_device(&mut self, headers: &Headers, answers: &mut Answers) -> Result<bool, Error> {
        if self.fallback.is_lost() {
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
        Ok(self.fallback.unless_lost(Some(decided))?.is_some())
    }
}

impl Processor for FallbackProcessor {
    type Error = Error;

    fn function(&self) -> Function {
        self.lookup.function()
    }

    fn reads_frames(&self) -> bool {
        self.device.as_ref().is_some_and(Processor::reads_frames)
    }

    fn idle(&mut self) -> Result<(), Error> {
        let idle = self.device.as_mut().map(Processor::idle);
        self.fallback.unless_lost(idle)?;
        Ok(())
    }

    fn process_batch(&mut self, headers: &Headers, answers: &mut Answers) -> Result<(), Error> {
        if self.by_device(headers, answers)? {
            return Ok(());
        }
        if self.fallback.is_lost() {
            let packets = headers.len() as u64;
            self.fallback.batches.fetch_add(1, Ordering::Relaxed);
            self.fallback.packets.fetch_add(packets, Ordering::Relaxed);
        }
        let Ok(()) = self.lookup.process_batch(headers, answers);
        Ok(())
    }
}

impl FallbackState {
    fn is_lost(&self) -> bool {
        self.why.get().is_some()
    }

    /// The result of a call to the device. None if the device is lost and CPUs continue.
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

/// Whether an error means that the device cannot be used any more; other errors concern the request.
fn is_loss(error: &super::Error) -> bool {
    use ::gpu::Error as Device;
    matches!(
        error,
        super::Error::Device(Device::Failed { .. } | Device::Memory { .. } | Device::Build { .. })
    )
}

impl Plane for FallbackTables {
    type Error = Error;
    type RuleTables = FallbackLists;

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

    fn compiler(&self) -> Compiler<FallbackLists, Error> {
        let cpu = self.tables.compiler();
        let gpu = self.device().map(Plane::compiler);
        let fallback = Arc::clone(&self.fallback);
        Box::new(move |rules: &RuleSet| {
            Ok(FallbackLists {
                cpu: cpu(rules)?,
                gpu: fallback.unless_lost(gpu.map(|compile| compile(rules)))?,
            })
        })
    }

    fn enforce(&mut self, lists: FallbackLists) -> Result<Cleanup, Error> {
        let on_device = match (&mut self.gpu, lists.gpu) {
            (Some(gpu), Some(lists)) => Some(gpu.enforce(lists)?),
            _ => None,
        };
        let on_cpus = self.tables.enforce(lists.cpu)?;
        Ok(Box::new(move || {
            on_cpus();
            if let Some(cleanup) = on_device {
                cleanup();
            }
        }))
    }
}
