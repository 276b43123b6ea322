//! What becomes of packets, wherever they were dissected: counted under flows, and made into rows.

use arrow_schema::SchemaRef;

use crate::batch::Batcher;
use crate::column::Column;
use crate::counters::Exported;
use crate::dissect::Packet;
use crate::extractor::{Options, counted};
use crate::flow::{Flow, Limits, Place, Table};
use crate::packets::{Bits, Facts, Row};
use crate::rows::RowWriter;
use crate::schema::{Rows, Schema};
use crate::sink::{Error, Sink};

/// Keeps the flows of the moment and writes the rows of a schema.
#[derive(Debug)]
pub(crate) enum Keeper {
    Flows(Flows),
    Packets(Packets<Facts>),
    Bits(Packets<Bits>),
}

/// What was written of an output, and what went wrong with it.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) exported: Exported,
    pub(crate) rows: u64,
    pub(crate) lost_rows: u64,
    pub(crate) output: Result<(), Error>,
}

/// A schema's rows in Arrow's terms.
pub fn arrow_schema(schema: &Schema, options: &Options) -> SchemaRef {
    let options = &schema.options(options);
    match schema.rows {
        Rows::Flows(columns) => batcher(schema, columns, options).schema().clone(),
        Rows::Packets(columns) => batcher(schema, columns, options).schema().clone(),
        Rows::Bits(columns) => batcher(schema, columns, options).schema().clone(),
    }
}

pub(crate) fn batcher<R>(
    schema: &Schema,
    columns: &'static [&'static [Column<R>]],
    options: &Options,
) -> Batcher<R> {
    let batcher = Batcher::new(schema.name, columns, &options.limits);
    batcher.with_metadata(options.selection.metadata())
}

impl Keeper {
    /// By the schema's own options, where these were asked for.
    pub(crate) fn new(schema: &Schema, options: &Options, sink: Box<dyn Sink>) -> Self {
        let options = schema.options(options);
        let limits = &options.limits;
        let table = Table::new(options.timers, options.limits);
        match schema.rows {
            Rows::Flows(columns) => Self::Flows(Flows {
                table,
                exported: Exported::default(),
                rows: RowWriter::new(&batcher(schema, columns, &options), sink),
            }),
            Rows::Packets(columns) => {
                let rows = RowWriter::new(&batcher(schema, columns, &options), sink);
                Self::Packets(Packets::new(table, limits, rows))
            }
            Rows::Bits(columns) => {
                let rows = RowWriter::new(&batcher(schema, columns, &options), sink);
                Self::Bits(Packets::new(table, limits, rows))
            }
        }
    }

    /// Takes a packet; exports the flow that it ends, or a row about itself.
    #[inline]
    pub(crate) fn packet(&mut self, packet: &Packet<'_>) {
        match self {
            Self::Flows(flows) => flows.packet(packet),
            Self::Packets(packets) => packets.packet(packet),
            Self::Bits(packets) => packets.packet(packet),
        }
    }

    /// Says when the first frame was captured, whoever gets it: then sweeps at the same times end the same
    /// flows in every table that has a part of them.
    pub(crate) fn begin(&mut self, time_ns: i64) {
        match self {
            Self::Flows(flows) => flows.table.begin(time_ns),
            Self::Packets(packets) => packets.table.begin(time_ns),
            Self::Bits(packets) => packets.table.begin(time_ns),
        }
    }

    /// Ends the flows that no packet at or after this time can belong to.
    pub(crate) fn sweep(&mut self, now_ns: i64) {
        self.any().sweep(now_ns);
    }

    /// Hands on the rows that have been collected.
    pub(crate) fn flush(&mut self) {
        self.any().flush();
    }

    pub(crate) fn exported(&self) -> Exported {
        self.each().exported()
    }

    /// Packets in flows that have not ended, and have no row of their own.
    pub(crate) fn open(&self) -> u64 {
        self.each().open()
    }

    /// Rows that the output has or will have, and rows that are lost so far.
    pub(crate) fn rows(&self) -> (u64, u64) {
        self.each().rows()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.each().has_failed()
    }

    /// Ends every flow, and completes the output.
    pub(crate) fn finish(self) -> Written {
        match self {
            Self::Flows(flows) => flows.finish(),
            Self::Packets(packets) => packets.finish(),
            Self::Bits(packets) => packets.finish(),
        }
    }

    fn any(&mut self) -> &mut dyn Keep {
        match self {
            Self::Flows(flows) => flows,
            Self::Packets(packets) => packets,
            Self::Bits(packets) => packets,
        }
    }

    fn each(&self) -> &dyn Keep {
        match self {
            Self::Flows(flows) => flows,
            Self::Packets(packets) => packets,
            Self::Bits(packets) => packets,
        }
    }
}

/// What is done now and then, not for each packet.
trait Keep {
    fn sweep(&mut self, now_ns: i64);
    fn flush(&mut self);
    fn exported(&self) -> Exported;
    fn open(&self) -> u64;
    fn rows(&self) -> (u64, u64);
    fn has_failed(&self) -> bool;
}

/// A row for each flow that ends.
#[derive(Debug)]
pub(crate) struct Flows {
    table: Table,
    exported: Exported,
    rows: RowWriter<Flow>,
}

impl Flows {
    #[inline]
    fn packet(&mut self, packet: &Packet<'_>) {
        let rows = &mut self.rows;
        let mut export = counted(&mut self.exported, |flow| rows.push(flow));
        self.table.add(packet, &mut export);
    }

    fn finish(mut self) -> Written {
        let rows = &mut self.rows;
        self.table
            .drain(&mut counted(&mut self.exported, |flow| rows.push(flow)));
        let (rows, lost_rows, output) = self.rows.finish();
        Written {
            exported: self.exported,
            rows,
            lost_rows,
            output,
        }
    }
}

impl Keep for Flows {
    fn sweep(&mut self, now_ns: i64) {
        let rows = &mut self.rows;
        let mut export = counted(&mut self.exported, |flow| rows.push(flow));
        self.table.sweep(now_ns, &mut export);
    }

    fn flush(&mut self) {
        self.rows.flush();
    }

    fn exported(&self) -> Exported {
        self.exported
    }

    fn open(&self) -> u64 {
        self.table.packets()
    }

    fn rows(&self) -> (u64, u64) {
        self.rows.counts()
    }

    fn has_failed(&self) -> bool {
        self.rows.has_failed()
    }
}

/// A row for each packet. Flows are kept to say where in them it is.
#[derive(Debug)]
pub(crate) struct Packets<R: 'static> {
    table: Table,
    limits: Limits,
    exported: Exported,
    rows: RowWriter<R, R>,
}

impl<R: Row> Packets<R> {
    fn new(table: Table, limits: &Limits, rows: RowWriter<R, R>) -> Self {
        Self {
            table,
            limits: *limits,
            exported: Exported::default(),
            rows,
        }
    }

    #[inline]
    fn packet(&mut self, packet: &Packet<'_>) {
        let exported = &mut self.exported;
        let mut end = |flow: Box<Flow>| exported.flow(&flow);
        let look = |flow: &Flow| Place::next(flow, packet);
        if let Some(place) = self.table.add_and(packet, &mut end, look) {
            self.exported.packets += 1;
            self.rows.push(R::of(packet, place, &self.limits));
        }
    }

    fn finish(mut self) -> Written {
        self.table.drain(&mut |flow| self.exported.flow(&flow));
        let (rows, lost_rows, output) = self.rows.finish();
        Written {
            exported: self.exported,
            rows,
            lost_rows,
            output,
        }
    }
}

impl<R: Row> Keep for Packets<R> {
    fn sweep(&mut self, now_ns: i64) {
        let exported = &mut self.exported;
        self.table.sweep(now_ns, &mut |flow| exported.flow(&flow));
    }

    fn flush(&mut self) {
        self.rows.flush();
    }

    fn exported(&self) -> Exported {
        self.exported
    }

    fn open(&self) -> u64 {
        0
    }

    fn rows(&self) -> (u64, u64) {
        self.rows.counts()
    }

    fn has_failed(&self) -> bool {
        self.rows.has_failed()
    }
}
