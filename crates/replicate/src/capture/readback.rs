//! Decides when what is in doubt is read, and when that is done with: between two numbers of events, so that what
//! was told before is said before, and what was told meanwhile after.

use std::time::{Duration, Instant};

use super::doubt::Doubts;
use super::file_reader::FileReader;
use super::pipeline::{Pipeline, ReadbackLoad};
use super::rescan::TreeScan;
use super::{Error, Listener, Options};

/// Who tells only where it was written is read from so often, while nothing is synced, and so often a file system
/// is made to commit its journal that has data in it.
const JOURNAL_INTERVAL: Duration = Duration::from_millis(200);

/// The readback of what is in doubt.
#[derive(Debug)]
pub(super) struct Readback {
    phase: Phase,
    reader: FileReader,
    /// Programs tell where files are written, not what.
    journal: bool,
    /// The tree has not been compared yet with the log that is taken up.
    rescan: bool,
    /// When the last one began, of those that are at an interval.
    last: Instant,
}

/// How far what is in doubt has been read.
#[derive(Debug)]
enum Phase {
    Idle,
    /// Stores from now on are seen; what was told until `after` comes before what is read.
    Armed {
        after: u64,
        doubts: Doubts,
    },
    /// Read; what was told until `after` may have been read as well.
    Closing {
        after: u64,
        doubts: Doubts,
    },
}

impl Readback {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            phase: Phase::Idle,
            reader: FileReader::new(options.rate_limit),
            journal: options.journal,
            rescan: false,
            last: Instant::now(),
        }
    }

    /// Has the whole tree compared with the log, with what is in doubt first.
    pub(super) fn request_rescan(&mut self) {
        self.rescan = true;
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Goes on reading what is in doubt; whether more can be done once the events that are there have been derived from.
    pub(super) fn advance(
        &mut self,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<bool, Error> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle if pipeline.shadow.doubts.is_empty() || !self.is_ripe(pipeline) => {
                Ok(false)
            }
            Phase::Idle => {
                self.arm(pipeline)?;
                Ok(true)
            }
            Phase::Armed { after, doubts } if pipeline.reached(after)? => {
                self.read(doubts, pipeline, listener)?;
                Ok(true)
            }
            Phase::Closing { after, doubts } if pipeline.reached(after)? => {
                pipeline.set_readback(ReadbackLoad::default());
                pipeline.shadow.settle(doubts);
                pipeline.pass_on(listener)?;
                // What is in doubt since is read by the next call: its writer may go on for ever.
                Ok(false)
            }
            waiting => {
                self.phase = waiting;
                Ok(false)
            }
        }
    }

    /// Whether what is in doubt is to be read now: what is written again and again is read once.
    pub(super) fn is_ripe(&self, pipeline: &Pipeline) -> bool {
        let epochs = &pipeline.epochs;
        !self.has_interval(pipeline)
            || epochs.has_barrier()
            || epochs.last() == 0
            || self.until_ripe().is_zero()
    }

    /// For how long what is in doubt may wait yet, if nothing is synced.
    pub(super) fn until_ripe(&self) -> Duration {
        JOURNAL_INTERVAL.saturating_sub(self.last.elapsed())
    }

    fn has_interval(&self, pipeline: &Pipeline) -> bool {
        self.journal || pipeline.shadow.source.journals_data()
    }

    /// Has stores to what is in doubt seen from now on.
    fn arm(&mut self, pipeline: &mut Pipeline) -> Result<(), Error> {
        let doubts = std::mem::take(&mut pipeline.shadow.doubts);
        if self.has_interval(pipeline) {
            self.last = Instant::now();
        }
        if doubts.values().any(|doubt| doubt.stores) {
            // A page is told to be dirty before it is marked so, under a spinlock, and only then found by
            // what makes it clean: not to be told of a store again, where a hypervisor has stopped that CPU.
            let _unknown = sys::sched::grace_period();
        }
        for (file, doubt) in &doubts {
            pipeline.shadow.clean(*file, doubt)?;
        }
        let after = pipeline.queue.counters()?.next;
        pipeline.set_readback(ReadbackLoad {
            files: doubts.len(),
            defers_events: false,
        });
        self.phase = Phase::Armed { after, doubts };
        Ok(())
    }

    fn read(
        &mut self,
        doubts: Doubts,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        let mut load = ReadbackLoad {
            files: doubts.len(),
            defers_events: true,
        };
        pipeline.set_readback(load);
        // Nothing is derived until all has been read: what was told before, also of a file that is about to be
        // found, is there to be read, and what is written from now on is told once more.
        if self.journal {
            pipeline.queue.programs_mut().next_period()?;
        }
        if std::mem::take(&mut self.rescan) {
            TreeScan::new(&mut self.reader, pipeline, listener).run()?;
        }
        self.reader.read_all(&doubts, pipeline, listener)?;
        let after = pipeline.queue.counters()?.next;
        load.defers_events = false;
        pipeline.set_readback(load);
        self.phase = Phase::Closing { after, doubts };
        Ok(())
    }
}
