//! The router on a device that runs kernels: batches of headers go there, decisions come back. Tables
//! are those of the CPU engine, array by array, and updated while batches are on the way.

pub mod backed;
mod copies;
mod error;
mod header;
mod input;
mod launch;
mod launching;
mod lists;
#[cfg(test)]
mod native;
mod original;
mod processor;
mod recorded;
mod resident;
mod source;
mod steps;
mod timed;
mod width;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use gpu::{Buffer, Device, DeviceInfo, Memory};
use lpm::{Layout4, NextHop, Prefix4, Prefix6};

use crate::engine::{Contents, Engine, Function};
use crate::forward::{Compiler, Family, Forwarding, Plane, Rest};
use crate::image::Stored;
use crate::rules::{Hits, RuleSet};
use crate::shape::Shape;
use copies::Copies;
use original::Original;

pub use copies::CaughtUp;
pub use error::Error;
pub use launching::Launching;
pub use lists::Lists;
pub use processor::OnDevice;
pub use source::{KERNELS, SOURCE, STAYING};
pub use steps::Schedule;
pub use timed::Timed;
pub use width::Width;

/// Which device, and how batches get there; nothing is chosen by itself.
#[derive(Clone, Debug)]
pub struct Options {
    pub device: DeviceInfo,
    pub layout4: Layout4,
    /// What of a packet goes there.
    pub copy: Copy,
    /// Where batches lie on their way.
    pub memory: Memory,
    /// Parts of a batch that are on their way at once, in queues of their own.
    pub streams: NonZeroUsize,
    pub launching: Launching,
    /// What kernels do for each packet.
    pub schedule: Schedule,
    /// What of a decision comes back.
    pub result: Width,
    /// Whether each batch is answered with every change that was made before it, and so waits for the batches
    /// of other threads that are on their way. Without, changes wait for them.
    pub latest: bool,
    /// How many times what the prefixes need there is room for. A device has no address space to spare.
    pub growth: usize,
}

impl Options {
    /// Every layout and size of tables, and memory that every device can do with.
    pub fn of(device: DeviceInfo) -> Self {
        Self {
            device,
            layout4: Layout4::Mixed,
            copy: Copy::Headers,
            memory: Memory::Pageable,
            streams: NonZeroUsize::MIN,
            launching: Launching::Stream,
            schedule: Schedule::PerPacket,
            result: Width::U32,
            latest: false,
            growth: 2,
        }
    }
}

impl Options {
    /// What does not go together.
    fn check(&self) -> Result<(), Error> {
        let wrong = |what| Err(Error::Options(what));
        match (self.launching, self.memory) {
            (Launching::Graph, Memory::Pageable) => wrong(
                "a recorded batch is copied from memory that stays where it is: pinned or mapped, not pageable",
            ),
            (Launching::Persistent, Memory::Pageable | Memory::Pinned) => wrong(
                "a kernel that stays reads and writes batches where they are: memory is mapped, not copied",
            ),
            (Launching::Persistent, _) if self.schedule == Schedule::PerFunction => {
                wrong("a kernel that stays does everything: its schedule is per-packet")
            }
            _ => Ok(()),
        }
    }

    /// The device with the kernels that it takes.
    fn open(&self) -> Result<Device, Error> {
        let most = &KERNELS[..KERNELS.len() - 1];
        Ok(match self.launching {
            Launching::Stream => Device::open(&self.device, SOURCE, most)?,
            Launching::Graph => {
                let device = Device::open(&self.device, SOURCE, most)?;
                device.check_recording().map_err(gpu::Error::from)?;
                device
            }
            Launching::Persistent => Device::open_persistent(&self.device, STAYING, &KERNELS)?,
        })
    }
}

/// What of a packet goes to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Copy {
    /// Its key, which is found before.
    Headers,
    /// All of it: the device finds the key.
    Full,
}

impl Copy {
    pub const ALL: [Self; 2] = [Self::Headers, Self::Full];

    /// How people name it.
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
    copies: Mutex<Copies>,
    lists: Mutex<Arc<Lists>>,
    result: Width,
    latest: bool,
    /// The highest number of a next hop so far.
    highest: AtomicU16,
}

impl Engine for Gpu {
    type Options = Options;
    type Processor = OnDevice;

    fn setup(contents: Contents, options: &Options) -> Result<Self, Error> {
        Self::new(contents, None, options)
    }

    fn processor(&self, function: Function) -> Result<OnDevice, Error> {
        OnDevice::new(function, &self.shared, &self.options)
    }
}

impl Gpu {
    /// As [`Engine::setup`], with the arrays of an image, whose routes are those of `contents`.
    ///
    /// # Errors
    /// As `setup`; content that no table has.
    pub fn restore(image: &Stored, contents: Contents, options: &Options) -> Result<Self, Error> {
        // Its entries do not fit: arrays are made anew.
        let narrower = options.layout4 == Layout4::Bytes && image.layout4() != Layout4::Bytes;
        let image = Some(image).filter(|_| !narrower);
        Self::new(contents, image, options)
    }

    fn new(contents: Contents, image: Option<&Stored>, options: &Options) -> Result<Self, Error> {
        let Contents { v4, v6, rules } = contents;
        let hops = v4.iter().map(|(_, hop)| hop);
        let hops = hops.chain(v6.iter().map(|(_, hop)| hop));
        let highest = hops.map(NextHop::get).max().unwrap_or(lpm::NO_ROUTE);
        options.result.holds(highest)?;
        options.check()?;
        let device = options.open()?;
        let shape = Shape::of(options.layout4, options.growth, &v4, &v6)?;
        let original = Original::build(&shape, (v4, v6), image)?;
        let copies = Copies::new(&device, original)?;
        let lists = Lists::build(&rules, &device)?;
        Ok(Self {
            shared: Arc::new(Shared {
                device,
                copies: Mutex::new(copies),
                lists: Mutex::new(Arc::new(lists)),
                result: options.result,
                latest: options.latest,
                highest: AtomicU16::new(highest),
            }),
            options: options.clone(),
        })
    }

    /// Bytes of the structures that lookups read: of the routes, and of the rules. The device has the
    /// former twice.
    pub fn bytes(&self) -> (usize, usize) {
        let routes = self.shared.copies().original().in_use();
        (routes, self.shared.lists().bytes())
    }

    /// As [`Engine::processor`], whose batches the device times part by part: see [`OnDevice::timed`]. None
    /// where kernels are not launched by calls that it could time.
    ///
    /// # Errors
    /// As `processor`.
    pub fn timed_processor(&self, function: Function) -> Result<Option<OnDevice>, Error> {
        if self.options.launching != Launching::Stream {
            return Ok(None);
        }
        let mut processor = self.processor(function)?;
        processor.time()?;
        Ok(Some(processor))
    }

    /// Bytes that copies within the device's memory read and write in a nanosecond.
    ///
    /// # Errors
    /// A device that is gone, or has no memory left for it.
    pub fn bandwidth(&self) -> Result<f64, Error> {
        Ok(self.shared.device.bandwidth()?)
    }

    /// What changes of routes have cost batches.
    pub fn caught_up(&self) -> CaughtUp {
        self.shared.copies().caught_up()
    }

    /// What makes lookups slow, in words; nothing for ordinary tables.
    pub fn warnings(&self) -> Vec<String> {
        self.shared.lists().warnings().cloned().collect()
    }

    /// How often each rule in force matched: of IPv4's list, and of IPv6's. The last million packets of a
    /// thread may not be among it before the thread ends.
    pub fn hits(&self) -> [Hits; 2] {
        self.shared.lists().hits()
    }
}

impl Shared {
    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lists(&self) -> Arc<Lists> {
        Arc::clone(&self.lists.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Of a decision, as it comes back, by whatever routes were ever told.
    fn bits(&self, function: Function) -> u32 {
        let highest = self.highest.load(Ordering::Acquire);
        self.result.bits(function, highest)
    }

    /// To be told before a route to it is.
    fn expect(&self, hop: Option<NextHop>) -> Result<(), Error> {
        let hop = hop.map_or(lpm::NO_ROUTE, NextHop::get);
        self.result.holds(hop)?;
        self.highest.fetch_max(hop, Ordering::AcqRel);
        Ok(())
    }

    /// The routes of now.
    fn routes(&self) -> Result<Arc<Buffer>, Error> {
        loop {
            let mut copies = self.copies();
            let routes = copies.latest()?;
            if !self.latest || !copies.is_behind() {
                return Ok(routes);
            }
            drop(copies);
            thread::yield_now();
        }
    }
}

impl Plane for Gpu {
    type Error = Error;
    type Compiled = Lists;

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        self.shared.expect(hop)?;
        self.shared.copies().route4(prefix, hop)
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
        self.shared.expect(hop)?;
        self.shared.copies().route6(prefix, hop)
    }

    /// Decisions are numbers of next hops: what they stand for is not asked.
    fn next_hop(&mut self, _: Family, _: NextHop, _: &Forwarding) -> Result<(), Error> {
        Ok(())
    }

    fn compiler(&self) -> Compiler<Lists, Error> {
        let device = self.shared.device.clone();
        Box::new(move |rules: &RuleSet| Lists::build(rules, &device))
    }

    fn enforce(&mut self, lists: Lists) -> Result<Rest, Error> {
        let mut in_force = self
            .shared
            .lists
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *in_force, Arc::new(lists));
        Ok(Box::new(move || drop(before)))
    }
}
