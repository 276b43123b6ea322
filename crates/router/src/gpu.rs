//! The router's engine on a GPU: batches of headers are sent to the device, and decisions come back. The
//! tables have the layout of the CPU engine's, and are updated while batches are in flight.

mod batch_times;
pub mod cpu_fallback;
mod device_tables;
mod error;
mod header;
mod host_tables;
mod input;
mod launch;
mod launch_mode;
mod lists;
#[cfg(test)]
mod native;
mod persistent;
mod processor;
mod recordings;
mod source;
mod steps;
mod width;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use gpu::{Buffer, Device, DeviceInfo, Memory};
use lpm::{Layout4, NextHop, Prefix4, Prefix6};

use crate::engine::{Contents, Engine, Function};
use crate::forward::{Cleanup, Compiler, Family, Forwarding, Plane};
use crate::image::ImageFile;
use crate::rules::{Hits, RuleSet};
use crate::shape::Shape;
use device_tables::DeviceTables;
use host_tables::HostTables;

pub use batch_times::BatchTimes;
pub use device_tables::UpdateCosts;
pub use error::Error;
pub use launch_mode::LaunchMode;
pub use lists::Lists;
pub use processor::DeviceProcessor;
pub use source::{KERNELS, PERSISTENT_SOURCE, SOURCE};
pub use steps::Schedule;
pub use width::Width;

/// The device, and how batches get there. Nothing is chosen automatically.
#[derive(Clone, Debug)]
pub struct Options {
    pub device: DeviceInfo,
    pub layout4: Layout4,
    /// The part of a packet that is copied to the device.
    pub copy: CopyMode,
    /// The kind of host memory that batches use.
    pub memory: Memory,
    /// Number of streams: a batch is divided into this many parts, which are in flight at once.
    pub streams: NonZeroUsize,
    pub launch_mode: LaunchMode,
    /// What kernels do for each packet.
    pub schedule: Schedule,
    /// The encoding of decisions on their way back.
    pub result: Width,
    /// Whether each batch sees every earlier change, for which it waits until batches of other threads are
    /// finished. Otherwise changes wait for them.
    pub latest: bool,
    /// Capacity of the tables as a multiple of what the first prefixes need. A device has no address space to
    /// reserve.
    pub growth: usize,
}

impl Options {
    /// Options that work for every device and all tables.
    pub fn of(device: DeviceInfo) -> Self {
        Self {
            device,
            layout4: Layout4::Mixed,
            copy: CopyMode::Headers,
            memory: Memory::Pageable,
            streams: NonZeroUsize::MIN,
            launch_mode: LaunchMode::Stream,
            schedule: Schedule::PerPacket,
            result: Width::U32,
            latest: false,
            growth: 2,
        }
    }
}

impl Options {
    /// Refuses combinations that do not work.
    fn check(&self) -> Result<(), Error> {
        let wrong = |what| Err(Error::Options(what));
        match (self.launch_mode, self.memory) {
            (LaunchMode::Graph, Memory::Pageable) => wrong(
                "a recorded batch is copied from memory that stays where it is: pinned or mapped, not pageable",
            ),
            (LaunchMode::Persistent, Memory::Pageable | Memory::Pinned) => wrong(
                "a kernel that stays reads and writes batches where they are: memory is mapped, not copied",
            ),
            (LaunchMode::Persistent, _) if self.schedule == Schedule::PerFunction => {
                wrong("a kernel that stays does everything: its schedule is per-packet")
            }
            _ => Ok(()),
        }
    }

    /// Opens the device with the kernels that it needs.
    fn open(&self) -> Result<Device, Error> {
        let most = &KERNELS[..KERNELS.len() - 1];
        Ok(match self.launch_mode {
            LaunchMode::Stream => Device::open(&self.device, SOURCE, most)?,
            LaunchMode::Graph => {
                let device = Device::open(&self.device, SOURCE, most)?;
                device.check_recording().map_err(gpu::Error::from)?;
                device
            }
            LaunchMode::Persistent => {
                Device::open_persistent(&self.device, PERSISTENT_SOURCE, &KERNELS)?
            }
        })
    }
}

/// The part of a packet that is copied to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyMode {
    /// Its key, which the CPU extracts.
    Headers,
    /// The whole frame, from which the device extracts the key.
    Full,
}

impl CopyMode {
    pub const ALL: [Self; 2] = [Self::Headers, Self::Full];

    /// The name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Headers => "headers",
            Self::Full => "full",
        }
    }
}

/// Routes and rules on a device.
#[derive(Debug)]
pub struct Gpu {
    shared: Arc<Shared>,
    options: Options,
}

#[derive(Debug)]
struct Shared {
    device: Device,
    tables: Mutex<DeviceTables>,
    lists: Mutex<Arc<Lists>>,
    result: Width,
    latest: bool,
    /// The highest next-hop number so far.
    highest: AtomicU16,
}

impl Engine for Gpu {
    type Options = Options;
    type Processor = DeviceProcessor;

    fn setup(contents: Contents, options: &Options) -> Result<Self, Error> {
        Self::new(contents, None, options)
    }

    fn processor(&self, function: Function) -> Result<DeviceProcessor, Error> {
        DeviceProcessor::new(function, &self.shared, &self.options)
    }
}

impl Gpu {
    /// As [`Engine::setup`], with the arrays of an image, whose routes are those of `contents`.
    ///
    /// # Errors
    /// As `setup`; content that no table has.
    pub fn restore(
        image: &ImageFile,
        contents: Contents,
        options: &Options,
    ) -> Result<Self, Error> {
        // Entries of the image do not fit this layout, so the arrays are built from the routes.
        let narrower = options.layout4 == Layout4::Bytes && image.layout4() != Layout4::Bytes;
        let image = Some(image).filter(|_| !narrower);
        Self::new(contents, image, options)
    }

    fn new(
        contents: Contents,
        image: Option<&ImageFile>,
        options: &Options,
    ) -> Result<Self, Error> {
        let Contents { v4, v6, rules } = contents;
        let hops = v4.iter().map(|(_, hop)| hop);
        let hops = hops.chain(v6.iter().map(|(_, hop)| hop));
        let highest = hops.map(NextHop::get).max().unwrap_or(lpm::NO_ROUTE);
        options.result.holds(highest)?;
        options.check()?;
        let device = options.open()?;
        let shape = Shape::of(options.layout4, options.growth, &v4, &v6)?;
        let host = HostTables::build(&shape, (v4, v6), image)?;
        let tables = DeviceTables::new(&device, host)?;
        let lists = Lists::build(&rules, &device)?;
        Ok(Self {
            shared: Arc::new(Shared {
                device,
                tables: Mutex::new(tables),
                lists: Mutex::new(Arc::new(lists)),
                result: options.result,
                latest: options.latest,
                highest: AtomicU16::new(highest),
            }),
            options: options.clone(),
        })
    }

    /// Bytes of the structures that lookups read: routes, rules. The device has the routes twice.
    pub fn bytes(&self) -> (usize, usize) {
        let routes = self.shared.tables().host().in_use();
        (routes, self.shared.lists().bytes())
    }

    /// As [`Engine::processor`], with batches that the device times: see [`DeviceProcessor::batch_times`].
    /// None if kernels are not launched by separate calls.
    ///
    /// # Errors
    /// As `processor`.
    pub fn timed_processor(&self, function: Function) -> Result<Option<DeviceProcessor>, Error> {
        if self.options.launch_mode != LaunchMode::Stream {
            return Ok(None);
        }
        let mut processor = self.processor(function)?;
        processor.time()?;
        Ok(Some(processor))
    }

    /// Bandwidth of copies within the device's memory: bytes read and written in a nanosecond.
    ///
    /// # Errors
    /// The device is lost, or has no memory left.
    pub fn bandwidth(&self) -> Result<f64, Error> {
        Ok(self.shared.device.bandwidth()?)
    }

    /// Costs of updating routes on the device.
    pub fn update_costs(&self) -> UpdateCosts {
        self.shared.tables().update_costs()
    }

    /// Reasons for slow lookups; none for ordinary tables.
    pub fn warnings(&self) -> Vec<String> {
        self.shared.lists().warnings().cloned().collect()
    }

    /// How often each rule in force matched: IPv4's list, IPv6's. The last million packets of a thread may be
    /// missing until it ends.
    pub fn hits(&self) -> [Hits; 2] {
        self.shared.lists().hits()
    }
}

impl Shared {
    fn tables(&self) -> MutexGuard<'_, DeviceTables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lists(&self) -> Arc<Lists> {
        Arc::clone(&self.lists.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bits of an encoded decision that can hold every next hop so far.
    fn bits(&self, function: Function) -> u32 {
        let highest = self.highest.load(Ordering::Acquire);
        self.result.bits(function, highest)
    }

    /// Checks and notes a next hop. Must be called before a route to it is added.
    fn expect(&self, hop: Option<NextHop>) -> Result<(), Error> {
        let hop = hop.map_or(lpm::NO_ROUTE, NextHop::get);
        self.result.holds(hop)?;
        self.highest.fetch_max(hop, Ordering::AcqRel);
        Ok(())
    }

    /// The current routes.
    fn routes(&self) -> Result<Arc<Buffer>, Error> {
        loop {
            let mut tables = self.tables();
            let routes = tables.latest()?;
            if !self.latest || !tables.is_stale() {
                return Ok(routes);
            }
            drop(tables);
            thread::yield_now();
        }
    }
}

impl Plane for Gpu {
    type Error = Error;
    type RuleTables = Lists;

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        self.shared.expect(hop)?;
        self.shared.tables().route4(prefix, hop)
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        self.shared.expect(hop)?;
        self.shared.tables().route6(prefix, hop)
    }

    /// Decisions are next-hop numbers: the device does not need their forwarding.
    fn next_hop(&mut self, _: Family, _: NextHop, _: &Forwarding) -> Result<(), Error> {
        Ok(())
    }

    fn compiler(&self) -> Compiler<Lists, Error> {
        let device = self.shared.device.clone();
        Box::new(move |rules: &RuleSet| Lists::build(rules, &device))
    }

    fn enforce(&mut self, lists: Lists) -> Result<Cleanup, Error> {
        let mut in_force = self
            .shared
            .lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *in_force, Arc::new(lists));
        Ok(Box::new(move || drop(before)))
    }
}
