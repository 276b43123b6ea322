//! The extractor turns frames into ended flows or rows and accounts for every frame.

use packet::pcap::Frame;

use crate::counters::{Counters, InputCounters};
use crate::dissect::{Fragments, Packet, Tunnels, dissect};
use crate::filter::{Fate, Selection};
use crate::flow::Flow;
use crate::options::Options;
use crate::pipeline::{FlowPipeline, FlowStage, Stage};
use crate::recording::Recorder;
use crate::schema::Schema;
use crate::sink::{self, Sink};

/// Dissects frames in order of arrival and passes their packets to a stage, which keeps the open flows.
#[derive(Debug)]
pub struct Extractor<S> {
    reader: PacketReader,
    horizon: Horizon,
    stage: S,
    /// Records the frames whose packets are kept.
    recorder: Option<Recorder>,
}

/// An extractor that writes the rows of a schema.
pub(crate) type RowExtractor = Extractor<FlowPipeline>;

/// The result of a [`RowExtractor`].
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) counters: Counters,
    pub(crate) rows: u64,
    pub(crate) lost_rows: u64,
    pub(crate) output: Result<(), sink::Error>,
}

/// Turns frames into packets with their ports. It keeps state across packets, such as fragments, but no flows.
#[derive(Debug, Default)]
pub struct PacketReader {
    tunnels: Tunnels,
    by_vlan: bool,
    ignore_icmp_id: bool,
    selection: Selection,
    fragments: Fragments,
    seen: InputCounters,
}

impl PacketReader {
    pub fn new(options: &Options) -> Self {
        Self {
            tunnels: options.tunnels,
            by_vlan: options.by_vlan,
            ignore_icmp_id: options.ignore_icmp_id,
            selection: options.selection.clone(),
            ..Self::default()
        }
    }

    /// Returns the packet in a frame if the selection keeps it. Every frame is counted, with or without a packet.
    pub fn read<'a>(&mut self, frame: &Frame<'a>) -> Option<Packet<'a>> {
        self.look(frame, |packet| *packet)
    }

    /// Like [`Self::read`], but lends the packet to `take`. A `Packet` is large, so each copy of it is measurable.
    #[inline]
    pub(crate) fn look<'a, T>(
        &mut self,
        frame: &Frame<'a>,
        take: impl FnOnce(&Packet<'a>) -> T,
    ) -> Option<T> {
        self.seen.packets += 1;
        self.seen.bytes += frame.wire_length();
        match &mut dissect(frame, self.tunnels) {
            Ok(packet) => {
                if self.by_vlan {
                    packet.key.vlan = packet.link.vlan;
                }
                if !self.ignore_icmp_id {
                    packet.distinguish_echo();
                }
                if !self.fragments.complete(packet) {
                    self.seen.lone_fragments += 1;
                }
                self.keeps(packet).then(|| take(packet))
            }
            Err(why) => {
                self.seen.refuse(*why);
                None
            }
        }
    }

    #[inline]
    fn keeps(&mut self, packet: &Packet<'_>) -> bool {
        match self.selection.judge(packet) {
            Fate::Kept => return true,
            Fate::Filtered => self.seen.filtered += 1,
            Fate::SampledOut => self.seen.sampled_out += 1,
            Fate::RateLimited => self.seen.rate_limited += 1,
        }
        false
    }

    /// The input counted so far.
    pub fn seen(&self) -> InputCounters {
        self.seen
    }
}

impl<F: FnMut(Box<Flow>)> Extractor<FlowStage<F>> {
    /// An extractor that exports each flow when it ends.
    pub fn new(options: &Options, export: F) -> Self {
        Self {
            reader: PacketReader::new(options),
            horizon: Horizon::default(),
            stage: FlowStage::new(options, export),
            recorder: None,
        }
    }

    /// Exports the open flows.
    pub fn finish(mut self) -> Counters {
        self.stage.drain();
        self.counters()
    }
}

impl<S: Stage> Extractor<S> {
    /// Takes the next frame. Exports the flows that the frame ends and the flows that have timed out.
    #[inline]
    pub fn frame(&mut self, frame: &Frame<'_>) {
        self.part(frame);
        if let Some(horizon_ns) = self.horizon.frame(frame.timestamp_ns) {
            self.sweep(horizon_ns);
        }
    }

    /// Takes a frame of a capture that several extractors share. The capture's reader calls [`Self::sweep`].
    #[inline]
    pub(crate) fn part(&mut self, frame: &Frame<'_>) {
        let kept = self.reader.look(frame, |packet| self.stage.packet(packet));
        if let (Some(()), Some(recorder)) = (kept, &mut self.recorder) {
            recorder.record(frame);
        }
    }

    /// Exports the flows that no packet at or after this time can belong to.
    pub fn sweep(&mut self, now_ns: i64) {
        self.stage.sweep(now_ns);
    }

    pub fn counters(&self) -> Counters {
        Counters {
            seen: self.reader.seen(),
            exported: self.stage.exported(),
            open: self.stage.open(),
        }
    }
}

impl RowExtractor {
    pub(crate) fn to_sink(schema: &Schema, options: &Options, sink: Box<dyn Sink>) -> Self {
        Self::to_sink_selecting(options.selection.clone(), schema, options, sink)
    }

    /// Like [`Self::to_sink`], but applies only `selection`. The rest of the options' selection is applied elsewhere.
    pub(crate) fn to_sink_selecting(
        selection: Selection,
        schema: &Schema,
        options: &Options,
        sink: Box<dyn Sink>,
    ) -> Self {
        let reading = Options {
            selection,
            ..schema.options(options)
        };
        Self {
            reader: PacketReader::new(&reading),
            horizon: Horizon::default(),
            stage: FlowPipeline::new(schema, options, sink),
            recorder: None,
        }
    }

    /// Also records the frames whose packets are kept.
    pub(crate) fn recorded_by(self, recorder: Option<Recorder>) -> Self {
        Self { recorder, ..self }
    }

    /// Sets the time of the first frame, before that frame is taken.
    pub(crate) fn begin(&mut self, time_ns: i64) {
        self.stage.begin(time_ns);
    }

    /// Exports the flows that have ended by this time and flushes the collected rows and frames.
    pub(crate) fn tick(&mut self, now_ns: i64) {
        self.stage.sweep(now_ns);
        self.flush();
    }

    /// Passes the collected rows to the sink and the collected frames to the recording.
    pub(crate) fn flush(&mut self) {
        self.stage.flush();
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.stage.failure().is_some() || self.recorder.as_ref().is_some_and(Recorder::has_failed)
    }

    /// Whether the reader of standard output has closed it. The run then ends without an error.
    pub(crate) fn has_closed_pipe(&self) -> bool {
        self.stage
            .failure()
            .is_some_and(sink::Error::is_closed_pipe)
    }

    /// The counters without a walk over the flows: every packet that is not exported is assumed to be in an open flow.
    pub(crate) fn quick_counters(&self) -> Counters {
        let (seen, exported) = (self.reader.seen(), self.stage.exported());
        let kept = seen.packets.saturating_sub(seen.left_out());
        Counters {
            seen,
            exported,
            open: kept.saturating_sub(exported.packets),
        }
    }

    /// Rows written, and rows lost.
    pub(crate) fn rows(&self) -> (u64, u64) {
        self.stage.rows()
    }

    pub(crate) fn finish(self) -> Done {
        let seen = self.reader.seen();
        let written = self.stage.finish();
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

/// The earliest timestamp among the latest frames. Because the minimum is used, a single wrong timestamp neither ends
/// flows early nor keeps them open, and frames may be out of order within that window.
#[derive(Debug)]
pub(crate) struct Horizon {
    least_ns: i64,
    frames: u32,
}

/// Frames between two sweeps of the table.
const LATEST: u32 = 1024;

impl Default for Horizon {
    fn default() -> Self {
        Self {
            least_ns: i64::MAX,
            frames: 0,
        }
    }
}

impl Horizon {
    /// Takes a frame's timestamp. Returns the time up to which the table can be swept, once per [`LATEST`] frames.
    #[inline]
    pub(crate) fn frame(&mut self, time_ns: i64) -> Option<i64> {
        self.least_ns = self.least_ns.min(time_ns);
        self.frames += 1;
        if self.frames < LATEST {
            return None;
        }
        let least_ns = self.least_ns;
        *self = Self::default();
        Some(least_ns)
    }
}
