//! From packets to rows: packets are counted in flows, and flows become rows, wherever the packets were dissected.

use arrow_schema::SchemaRef;

use crate::batch::Batcher;
use crate::column::Column;
use crate::counters::OutputCounters;
use crate::dissect::Packet;
use crate::flow::{Flow, Limits, Place, Table};
use crate::options::Options;
use crate::packets::{Bits, Facts, Row};
use crate::rows::RowWriter;
use crate::schema::{Rows, Schema};
use crate::sink::{Error, Sink};

/// Takes packets in order of arrival and keeps the open flows.
pub trait Stage {
    fn packet(&mut self, packet: &Packet<'_>);

    /// Ends the flows that cannot contain a packet at or after this time.
    fn sweep(&mut self, now_ns: i64);

    fn exported(&self) -> OutputCounters;

    /// Packets that are not exported yet.
    fn open(&self) -> u64;
}

/// A stage that writes rows.
trait RowStage: Stage {
    fn begin(&mut self, time_ns: i64);
    fn flush(&mut self);
    fn rows(&self) -> (u64, u64);
    fn failure(&self) -> Option<&Error>;
}

/// Takes flows that have ended.
pub trait FlowOutput {
    fn flow(&mut self, flow: Box<Flow>);
}

/// Keeps the open flows and writes the rows of a schema.
#[derive(Debug)]
pub(crate) enum FlowPipeline {
    Flows(FlowStage<RowWriter<Flow>>),
    Packets(PacketStage<Facts>),
    Bits(PacketStage<Bits>),
}

/// The result of an output.
#[derive(Debug)]
pub(crate) struct WriteResult {
    pub(crate) exported: OutputCounters,
    pub(crate) rows: u64,
    pub(crate) lost_rows: u64,
    pub(crate) output: Result<(), Error>,
}

/// The Arrow schema of a schema's rows.
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

impl FlowPipeline {
    /// Applies the options that the schema itself prescribes.
    pub(crate) fn new(schema: &Schema, options: &Options, sink: Box<dyn Sink>) -> Self {
        let options = &schema.options(options);
        match schema.rows {
            Rows::Flows(columns) => {
                let rows = RowWriter::new(&batcher(schema, columns, options), sink);
                Self::Flows(FlowStage::new(options, rows))
            }
            Rows::Packets(columns) => {
                let rows = RowWriter::new(&batcher(schema, columns, options), sink);
                Self::Packets(PacketStage::new(options, rows))
            }
            Rows::Bits(columns) => {
                let rows = RowWriter::new(&batcher(schema, columns, options), sink);
                Self::Bits(PacketStage::new(options, rows))
            }
        }
    }

    /// Sets the time of the capture's first frame, which may be in another worker's table. All tables of a capture
    /// then sweep at the same times and end the same flows.
    pub(crate) fn begin(&mut self, time_ns: i64) {
        self.stage_mut().begin(time_ns);
    }

    /// Passes the collected rows to the sink.
    pub(crate) fn flush(&mut self) {
        self.stage_mut().flush();
    }

    /// Rows written or waiting to be written, and rows lost so far.
    pub(crate) fn rows(&self) -> (u64, u64) {
        self.stage().rows()
    }

    /// The error after which the output accepts no more rows, if there was one.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.stage().failure()
    }

    /// Ends every flow and completes the output.
    pub(crate) fn finish(self) -> WriteResult {
        match self {
            Self::Flows(flows) => flows.finish(),
            Self::Packets(packets) => packets.finish(),
            Self::Bits(packets) => packets.finish(),
        }
    }

    /// The stage as a trait object, for calls that are not made for each packet.
    fn stage(&self) -> &dyn RowStage {
        match self {
            Self::Flows(flows) => flows,
            Self::Packets(packets) => packets,
            Self::Bits(packets) => packets,
        }
    }

    fn stage_mut(&mut self) -> &mut dyn RowStage {
        match self {
            Self::Flows(flows) => flows,
            Self::Packets(packets) => packets,
            Self::Bits(packets) => packets,
        }
    }
}

impl Stage for FlowPipeline {
    #[inline]
    fn packet(&mut self, packet: &Packet<'_>) {
        match self {
            Self::Flows(flows) => flows.packet(packet),
            Self::Packets(packets) => packets.packet(packet),
            Self::Bits(packets) => packets.packet(packet),
        }
    }

    fn sweep(&mut self, now_ns: i64) {
        self.stage_mut().sweep(now_ns);
    }

    fn exported(&self) -> OutputCounters {
        self.stage().exported()
    }

    fn open(&self) -> u64 {
        self.stage().open()
    }
}

/// Exports each flow when it ends.
#[derive(Debug)]
pub struct FlowStage<O> {
    table: Table,
    exported: OutputCounters,
    output: O,
}

impl<O: FlowOutput> FlowStage<O> {
    pub(crate) fn new(options: &Options, output: O) -> Self {
        Self {
            table: Table::new(options.timers, options.limits),
            exported: OutputCounters::default(),
            output,
        }
    }

    /// Exports the open flows.
    pub(crate) fn drain(&mut self) {
        let mut export = export(&mut self.exported, &mut self.output);
        self.table.drain(&mut export);
    }
}

impl<O: FlowOutput> Stage for FlowStage<O> {
    #[inline]
    fn packet(&mut self, packet: &Packet<'_>) {
        let mut export = export(&mut self.exported, &mut self.output);
        self.table.add(packet, &mut export);
    }

    fn sweep(&mut self, now_ns: i64) {
        let mut export = export(&mut self.exported, &mut self.output);
        self.table.sweep(now_ns, &mut export);
    }

    fn exported(&self) -> OutputCounters {
        self.exported
    }

    fn open(&self) -> u64 {
        self.table.packets()
    }
}

fn export(exported: &mut OutputCounters, output: &mut impl FlowOutput) -> impl FnMut(Box<Flow>) {
    move |flow: Box<Flow>| {
        exported.row(&flow);
        output.flow(flow);
    }
}

impl<F: FnMut(Box<Flow>)> FlowOutput for F {
    fn flow(&mut self, flow: Box<Flow>) {
        self(flow);
    }
}

impl FlowOutput for RowWriter<Flow> {
    fn flow(&mut self, flow: Box<Flow>) {
        self.push(flow);
    }
}

impl FlowStage<RowWriter<Flow>> {
    fn finish(mut self) -> WriteResult {
        self.drain();
        WriteResult::new(self.exported, self.output.finish())
    }
}

impl RowStage for FlowStage<RowWriter<Flow>> {
    fn begin(&mut self, time_ns: i64) {
        self.table.begin(time_ns);
    }

    fn flush(&mut self) {
        self.output.flush();
    }

    fn rows(&self) -> (u64, u64) {
        self.output.counts()
    }

    fn failure(&self) -> Option<&Error> {
        self.output.failure()
    }
}

/// Writes a row for each packet. It keeps flows to determine each packet's place in its flow.
#[derive(Debug)]
pub(crate) struct PacketStage<R: 'static> {
    table: Table,
    limits: Limits,
    exported: OutputCounters,
    rows: RowWriter<R, R>,
}

impl<R: Row> PacketStage<R> {
    fn new(options: &Options, rows: RowWriter<R, R>) -> Self {
        Self {
            table: Table::new(options.timers, options.limits),
            limits: options.limits,
            exported: OutputCounters::default(),
            rows,
        }
    }

    fn finish(mut self) -> WriteResult {
        self.table.drain(&mut |flow| self.exported.flow(&flow));
        WriteResult::new(self.exported, self.rows.finish())
    }
}

impl<R: Row> Stage for PacketStage<R> {
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

    fn sweep(&mut self, now_ns: i64) {
        let exported = &mut self.exported;
        self.table.sweep(now_ns, &mut |flow| exported.flow(&flow));
    }

    fn exported(&self) -> OutputCounters {
        self.exported
    }

    /// Always 0, because a packet's row is written at once.
    fn open(&self) -> u64 {
        0
    }
}

impl<R: Row> RowStage for PacketStage<R> {
    fn begin(&mut self, time_ns: i64) {
        self.table.begin(time_ns);
    }

    fn flush(&mut self) {
        self.rows.flush();
    }

    fn rows(&self) -> (u64, u64) {
        self.rows.counts()
    }

    fn failure(&self) -> Option<&Error> {
        self.rows.failure()
    }
}

impl WriteResult {
    /// `finished` is the result of [`RowWriter::finish`].
    pub(crate) fn new(exported: OutputCounters, finished: (u64, u64, Result<(), Error>)) -> Self {
        let (rows, lost_rows, output) = finished;
        Self {
            exported,
            rows,
            lost_rows,
            output,
        }
    }
}
