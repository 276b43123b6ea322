//! What a worker does with frames: read them, keep flows, and write rows.

use packet::pcap::Frame;

use crate::counters::Counters;
use crate::extractor::{Horizon, Options, PacketReader};
use crate::filter::Selection;
use crate::keep::Keeper;
use crate::recording::Recorder;
use crate::schema::Schema;
use crate::sink::{self, Sink};

/// One worker's packets and its rows.
#[derive(Debug)]
pub(crate) struct Work {
    reader: PacketReader,
    horizon: Horizon,
    keeper: Keeper,
    /// Gets the frames whose packets are kept.
    recorder: Option<Recorder>,
}

/// What a worker has done.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) counters: Counters,
    pub(crate) rows: u64,
    pub(crate) lost_rows: u64,
    pub(crate) output: Result<(), sink::Error>,
}

impl Work {
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
        let reading = Options {
            selection: here,
            ..schema.options(options)
        };
        Self {
            reader: PacketReader::new(&reading),
            horizon: Horizon::default(),
            keeper: Keeper::new(schema, options, sink),
            recorder: None,
        }
    }

    /// The same, and the frames are recorded.
    pub(crate) fn recorded_by(self, recorder: Option<Recorder>) -> Self {
        Self { recorder, ..self }
    }

    /// Says when the first frame was captured, before it is taken.
    pub(crate) fn begin(&mut self, time_ns: i64) {
        self.keeper.begin(time_ns);
    }

    /// Takes the next frame.
    #[inline]
    pub(crate) fn frame(&mut self, frame: &Frame<'_>) {
        self.part(frame);
        if let Some(horizon_ns) = self.horizon.frame(frame.timestamp_ns) {
            self.sweep(horizon_ns);
        }
    }

    /// Takes one of the frames that others share, whose time is somebody else's to keep.
    #[inline]
    pub(crate) fn part(&mut self, frame: &Frame<'_>) {
        let kept = self.reader.look(frame, |packet| self.keeper.packet(packet));
        if let (Some(()), Some(recorder)) = (kept, &mut self.recorder) {
            recorder.record(frame);
        }
    }

    /// Exports what has ended by this time.
    pub(crate) fn sweep(&mut self, now_ns: i64) {
        self.keeper.sweep(now_ns);
    }

    /// Exports what has ended by this time, and hands on what has been collected.
    pub(crate) fn tick(&mut self, now_ns: i64) {
        self.keeper.sweep(now_ns);
        self.keeper.flush();
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.keeper.has_failed() || self.recorder.as_ref().is_some_and(Recorder::has_failed)
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            seen: self.reader.seen(),
            exported: self.keeper.exported(),
            open: self.keeper.open(),
        }
    }

    /// The same at once, however many flows there are: what is not exported is taken to be in the table.
    pub(crate) fn quick_counters(&self) -> Counters {
        let (seen, exported) = (self.reader.seen(), self.keeper.exported());
        let left = seen.packets.saturating_sub(seen.left_out());
        Counters {
            seen,
            exported,
            open: left.saturating_sub(exported.packets),
        }
    }

    /// Rows written, and rows lost.
    pub(crate) fn rows(&self) -> (u64, u64) {
        self.keeper.rows()
    }

    pub(crate) fn finish(self) -> Done {
        let seen = self.reader.seen();
        let written = self.keeper.finish();
        Done {
            counters: Counters {
                seen,
                exported: written.exported,
                open: 0,
            },
            rows: written.rows,
            lost_rows: written.lost_rows,
            output: written.output,
        }
    }
}
