//! What a worker does with frames: keep flows, and write a row for each that ends.

use arrow_schema::SchemaRef;
use packet::pcap::Frame;

use crate::batch::Batcher;
use crate::counters::Counters;
use crate::extractor::{Extractor, Options};
use crate::filter::Selection;
use crate::flow::Flow;
use crate::rows::RowWriter;
use crate::schema::{Rows, Schema};
use crate::sink::{self, Sink};

/// One worker's extractor and its rows.
#[derive(Debug)]
pub(crate) struct FlowWork {
    extractor: Extractor,
    rows: RowWriter<Flow>,
}

/// What a worker has done.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) counters: Counters,
    pub(crate) rows: u64,
    pub(crate) lost_rows: u64,
    pub(crate) output: Result<(), sink::Error>,
}

/// A schema's rows in Arrow's terms.
pub fn arrow_schema(schema: &Schema, options: &Options) -> SchemaRef {
    batcher(schema, options).schema().clone()
}

pub(crate) fn batcher(schema: &Schema, options: &Options) -> Batcher<Flow> {
    let Rows::Flows(columns) = schema.rows;
    let batcher = Batcher::new(schema.name, columns, options.limits.steps);
    batcher.with_metadata(options.selection.metadata())
}

impl FlowWork {
    pub(crate) fn new(schema: &Schema, options: &Options, sink: Box<dyn Sink>) -> Self {
        Self::choosing(options.selection.clone(), schema, options, sink)
    }

    /// Of the packets that are wanted, those that come here are chosen by these rules.
    pub(crate) fn choosing(
        here: Selection,
        schema: &Schema,
        options: &Options,
        sink: Box<dyn Sink>,
    ) -> Self {
        let mut options = schema.options(options);
        options.limits.payloads &= schema.needs_payload();
        let rows = RowWriter::new(batcher(schema, &options), sink);
        options.selection = here;
        Self {
            extractor: Extractor::new(&options),
            rows,
        }
    }

    #[inline]
    pub(crate) fn frame(&mut self, frame: &Frame<'_>) {
        self.extractor
            .frame(frame, &mut |flow| self.rows.push(flow));
    }

    /// Exports what has ended by this time, and hands on what has been collected.
    pub(crate) fn tick(&mut self, now_ns: i64) {
        self.extractor
            .sweep(now_ns, &mut |flow| self.rows.push(flow));
        self.rows.flush();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.rows.has_failed()
    }

    pub(crate) fn counters(&self) -> Counters {
        self.extractor.counters()
    }

    /// Rows written, and rows lost.
    pub(crate) fn rows(&self) -> (u64, u64) {
        self.rows.counts()
    }

    pub(crate) fn finish(mut self) -> Done {
        self.extractor.finish(&mut |flow| self.rows.push(flow));
        let counters = self.extractor.counters();
        let (rows, lost_rows, output) = self.rows.finish();
        Done {
            counters,
            rows,
            lost_rows,
            output,
        }
    }
}
