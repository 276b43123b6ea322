//! The router on a device that runs kernels: batches of headers go there, decisions come back. Tables
//! are those of the CPU engine, array by array, and updated while batches are on the way.

mod copies;
mod error;
mod input;
mod launch;
mod lists;
#[cfg(test)]
mod native;
mod original;
mod processor;
mod source;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpu::{Buffer, Device, Listed, Memory};
use lpm::{Layout4, NextHop, Prefix4, Prefix6};

use crate::engine::{Contents, Engine, Function};
use crate::forward::{Compiler, Family, Forwarding, Plane, Rest};
use crate::image::Stored;
use crate::rules::{Hits, RuleSet};
use crate::shape::Shape;
use copies::Copies;
use original::Original;

pub use error::Error;
pub use lists::Lists;
pub use processor::OnDevice;
pub use source::{KERNELS, SOURCE};

/// Which device, and how batches get there; nothing is chosen by itself.
#[derive(Clone, Debug)]
pub struct Options {
    pub device: Listed,
    pub layout4: Layout4,
    /// What of a packet goes there.
    pub copy: Copy,
    /// Where batches lie on their way.
    pub memory: Memory,
    /// Parts of a batch that are on their way at once, in queues of their own.
    pub streams: NonZeroUsize,
    /// How many times what the prefixes need there is room for. A device has no address space to spare.
    pub growth: usize,
}

impl Options {
    /// Every layout and size of tables, and memory that every device can do with.
    pub fn of(device: Listed) -> Self {
        Self {
            device,
            layout4: Layout4::Mixed,
            copy: Copy::Headers,
            memory: Memory::Pageable,
            streams: NonZeroUsize::MIN,
            growth: 2,
        }
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
        let device = Device::open(&options.device, SOURCE, &KERNELS)?;
        let Contents { v4, v6, rules } = contents;
        let shape = Shape::of(options.layout4, options.growth, &v4, &v6)?;
        let original = Original::build(&shape, (v4, v6), image)?;
        let copies = Copies::new(&device, original)?;
        let lists = Lists::build(&rules, &device)?;
        Ok(Self {
            shared: Arc::new(Shared {
                device,
                copies: Mutex::new(copies),
                lists: Mutex::new(Arc::new(lists)),
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

    /// The routes of now.
    fn routes(&self) -> Result<Arc<Buffer>, Error> {
        self.copies().latest()
    }
}

impl Plane for Gpu {
    type Error = Error;
    type Compiled = Lists;

    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Error> {
        self.shared.copies().route4(prefix, hop)
    }

    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Error> {
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
