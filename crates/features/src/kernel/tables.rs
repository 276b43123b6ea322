//! The flow tables, one per CPU. Userspace reads them while programs write them, so a flow that is being updated may
//! be read half old and half new.

use bpf::{Cursor, Map};
use datapath::Error;
use libbpf_rs::{MapHandle, MapType};

use super::failed;
use super::memory;
use super::skel::flow::types;
use crate::flow::Flow;

/// Flows read per call.
const BATCH: u32 = 256;

pub(super) type Batch = bpf::Batch<types::flow_key, types::flow>;

/// The table of one CPU.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) cpu: u32,
    map: Map<types::flow_key, types::flow>,
}

#[derive(Debug)]
pub(super) struct Tables(Vec<Table>);

impl Tables {
    /// Creates a table and a queue of its flows for each online CPU, in memory near it, and registers them in the
    /// programs' maps.
    pub(super) fn make(
        tables: &Map<u32, i32>,
        queues: &Map<u32, i32>,
        flows: u32,
    ) -> Result<Self, Error> {
        let topology = memory::topology()?;
        let tables = topology.cpus().into_iter().map(|cpu| {
            let given = |error: bpf::Error| {
                Error::failed(format!("giving CPU {cpu} its table"), error.source)
            };
            let map = make(flows, topology.node_of(cpu))?;
            tables.set_descriptor(&cpu, &map).map_err(given)?;
            let queue = make_queue(flows, topology.node_of(cpu))?;
            queues.set_descriptor(&cpu, &queue).map_err(given)?;
            Ok(Table { cpu, map })
        });
        Ok(Self(tables.collect::<Result<_, Error>>()?))
    }

    pub(super) fn get(&self, index: usize) -> Option<&Table> {
        self.0.get(index)
    }

    /// Visits every flow in every table.
    pub(super) fn each(&self, take: &mut impl FnMut(&types::flow)) -> Result<(), Error> {
        let mut batch = batch();
        for table in &self.0 {
            let mut cursor = Cursor::default();
            loop {
                let more = table.read(&mut batch, &mut cursor)?;
                batch.values().iter().for_each(&mut *take);
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether another CPU's table has this key.
    pub(super) fn is_on_other_cpu(&self, cpu: u32, key: &types::flow_key) -> Result<bool, Error> {
        for table in self.0.iter().filter(|table| table.cpu != cpu) {
            if table.find(key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The flows with this key in all tables.
    pub(super) fn find(&self, key: &types::flow_key) -> Result<Vec<Flow>, Error> {
        let found = self.0.iter().map(|table| table.find(key));
        found.filter_map(Result::transpose).collect()
    }

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

impl Table {
    fn find(&self, key: &types::flow_key) -> Result<Option<Flow>, Error> {
        let found = self.map.get(key).map_err(failed("looking a flow up"))?;
        Ok(found.map(|record| (&record).into()))
    }

    /// Reads the next batch from the cursor. Returns whether there is more.
    pub(super) fn read(&self, batch: &mut Batch, cursor: &mut Cursor) -> Result<bool, Error> {
        self.map.read_batch(cursor, batch).map_err(|error| {
            Error::failed(format!("reading CPU {}'s flows", self.cpu), error.source)
        })
    }
}

pub(super) fn batch() -> Batch {
    Batch::new(BATCH)
}

/// The queue has twice as many entries as flows, because the entry of an ended flow stays until it is reached.
fn make_queue(flows: u32, node: u32) -> Result<MapHandle, Error> {
    let entry = u32::try_from(size_of::<types::queue_entry>()).unwrap_or(u32::MAX);
    let entries = flows.saturating_mul(2);
    let (name, options) = (Some("flow_queue"), memory::on(node));
    MapHandle::create(MapType::Queue, name, 0, entry, entries, &options)
        .map_err(failed("making a queue of flows"))
}

fn make(flows: u32, node: u32) -> Result<Map<types::flow_key, types::flow>, Error> {
    Map::create(MapType::Hash, "flow_table", flows, &memory::on(node))
        .map_err(|error| Error::failed(format!("making a table of {flows} flows"), error.source))
}
