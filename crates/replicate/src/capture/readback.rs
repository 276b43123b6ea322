//! Decides when the parts in doubt are read, and when that is complete. A readback lies between two
//! event numbers: events before it are recorded before what was read, later ones after it.

use std::time::{Duration, Instant};

use super::dirty::Doubts;
use super::file_reader::FileReader;
use super::pipeline::{Pipeline, ReadbackLoad};
use super::rescan::TreeScan;
use super::{Error, Listener, Options};

/// The interval of readbacks for file systems that report only where a write was, while nothing is
/// synced. A file system that has data in its journal is made to commit it at the same interval.
const JOURNAL_INTERVAL: Duration = Duration::from_millis(200);

/// The delay of the next readback after a file has changed while it was read. It doubles each time.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest delay, as a multiple of [`PAUSE`].
const MAX_PAUSE: u32 = 32;
/// How many readbacks follow each other without a pause, while each has at most half as much to
/// read.
const ROUNDS: u32 = 16;
/// How many times stores to mapped files are followed while their pages are written back, until
/// there are few.
const PASSES: u32 = 8;
const BATCH: usize = 2;

/// The readback of the parts in doubt.
#[derive(Debug)]
pub(super) struct Readback {
    phase: Phase,
    reader: FileReader,
    /// The programs report where files are written, not the bytes.
    journal: bool,
    /// The tree has still to be compared with the log that is continued.
    rescan: bool,
    /// When the last readback at an interval began.
    last: Instant,
    /// When the last readback ended, and how many pauses the next one waits.
    ended: Instant,
    pauses: u32,
    /// The number of readbacks that followed each other without a pause.
    rounds: u32,
}

/// The progress of a readback.
#[derive(Debug)]
enum Phase {
    Idle,
    /// Stores from now on are reported. Events below `after` precede what is read.
    Armed {
        after: u64,
        reading: Reading,
    },
    /// The reading is done. Changes of events below `after` may have been read with it.
    Closing {
        after: u64,
        quiet: bool,
        doubts: Doubts,
    },
}

/// The parts to read.
#[derive(Debug, Default)]
struct Reading {
    doubts: Doubts,
    /// Stores to these parts since. A page may have been written back after it was reported dirty
    /// and before it was marked dirty. Such parts stay in doubt, and a file is as it was read only
    /// if they are the same before and after.
    late: Doubts,
    passes: u32,
}

/// The outcome of [`Readback::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// Nothing could be done.
    Waits,
    /// More can be done once the queued events have been processed.
    GoesOn,
    /// What was read has been recorded, and no event has been processed since. If no operation was
    /// under way (`quiet`), this can be an epoch.
    Ends { quiet: bool },
}

impl Readback {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            phase: Phase::Idle,
            reader: FileReader::new(options.rate_limit),
            journal: options.journal,
            rescan: false,
            last: Instant::now(),
            ended: Instant::now(),
            pauses: 0,
            rounds: 0,
        }
    }

    /// Requests a comparison of the whole tree with the log, starting with the parts in doubt.
    pub(super) fn request_rescan(&mut self) {
        self.rescan = true;
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Continues to read the parts in doubt.
    pub(super) fn advance(
        &mut self,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<Advance, Error> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle if pipeline.shadow.doubts.is_empty() || !self.is_ripe(pipeline) => {
                Ok(Advance::Waits)
            }
            Phase::Idle => {
                self.arm(pipeline)?;
                Ok(Advance::GoesOn)
            }
            Phase::Armed { after, mut reading } if pipeline.reached(after)? => {
                let found = reading.join(pipeline)?;
                if found > BATCH && reading.passes < PASSES {
                    reading.passes += 1;
                    let after = pipeline.queue.counters()?.next;
                    self.phase = Phase::Armed { after, reading };
                } else {
                    self.read(reading, after, pipeline, listener)?;
                }
                Ok(Advance::GoesOn)
            }
            Phase::Closing {
                after,
                quiet,
                doubts,
            } if pipeline.reached(after)? => {
                pipeline.set_readback(ReadbackLoad::default());
                pipeline.stop_at(None);
                self.ended = Instant::now();
                let ranges = count_ranges(&doubts);
                let whole = pipeline.shadow.end_reading(doubts);
                if !whole && self.converges(ranges, pipeline) {
                    return Ok(Advance::GoesOn);
                }
                self.rounds = 0;
                self.pauses = match whole {
                    true => 0,
                    false => (self.pauses * 2).clamp(1, MAX_PAUSE),
                };
                // What has come to be in doubt since is left to the next call, because its writer
                // may go on forever.
                Ok(Advance::Ends { quiet })
            }
            waiting => {
                self.phase = waiting;
                Ok(Advance::Waits)
            }
        }
    }

    /// Whether what changed during a readback is to be read at once. It must be much less than was
    /// read, so that the next readback is shorter and less can change meanwhile. All of these
    /// together read at most twice as much as the first.
    fn converges(&mut self, ranges: usize, pipeline: &Pipeline) -> bool {
        let since = count_ranges(&pipeline.shadow.doubts);
        let few = since > 0 && since <= ranges / 2 && self.rounds < ROUNDS;
        let converges = few && !self.has_interval(pipeline);
        self.rounds += u32::from(converges);
        converges
    }

    /// Whether the parts in doubt are to be read now. The delay lets a part that is written
    /// repeatedly be read once.
    pub(super) fn is_ripe(&self, pipeline: &Pipeline) -> bool {
        self.until_ripe(pipeline).is_zero()
    }

    /// How long the parts in doubt may still wait if nothing is synced.
    pub(super) fn until_ripe(&self, pipeline: &Pipeline) -> Duration {
        // No epoch ends before all names are known, whatever else is in doubt.
        let at_once = pipeline.shadow.waits_for_names() || self.rounds > 0;
        let pause = match at_once {
            true => Duration::ZERO,
            false => (PAUSE * self.pauses).saturating_sub(self.ended.elapsed()),
        };
        let epochs = &pipeline.epochs;
        if !self.has_interval(pipeline) || epochs.has_barrier() || epochs.last() == 0 {
            return pause;
        }
        pause.max(JOURNAL_INTERVAL.saturating_sub(self.last.elapsed()))
    }

    fn has_interval(&self, pipeline: &Pipeline) -> bool {
        self.journal || pipeline.shadow.source.journals_data()
    }

    /// Arms the reporting of stores to the parts in doubt.
    fn arm(&mut self, pipeline: &mut Pipeline) -> Result<(), Error> {
        let doubts = std::mem::take(&mut pipeline.shadow.doubts);
        pipeline.shadow.begin_reading(&doubts);
        if self.has_interval(pipeline) {
            self.last = Instant::now();
        }
        if doubts.values().any(|doubt| doubt.stores) {
            // The kernel reports a page as dirty before it marks it so, under a spinlock. A
            // cleaning in between finds the page clean, and the next store is not reported. The gap
            // is long if a hypervisor has stopped that CPU.
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
        let reading = Reading {
            doubts,
            ..Reading::default()
        };
        self.phase = Phase::Armed { after, reading };
        Ok(())
    }

    /// Reads the parts in doubt. Events below `from` have been processed.
    fn read(
        &mut self,
        reading: Reading,
        from: u64,
        pipeline: &mut Pipeline,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        let Reading { doubts, late, .. } = reading;
        let mut load = ReadbackLoad {
            files: doubts.len(),
            defers_events: true,
        };
        pipeline.set_readback(load);
        // No events are processed until everything is read. Earlier writes, also to files that are
        // about to be found, are in what is read, and later ones are reported again.
        if self.journal {
            pipeline.queue.programs_mut().next_period()?;
        }
        if std::mem::take(&mut self.rescan) {
            TreeScan::new(&mut self.reader, pipeline, listener).run()?;
        }
        self.reader
            .read_all((&doubts, &late), from, pipeline, listener)?;
        for (file, doubt) in &late {
            let since = pipeline.shadow.doubts.entry(*file).or_default();
            since.join(doubt);
        }
        let quiet = pipeline.queue.quiet()?;
        let after = match quiet {
            Some(after) => after,
            None => pipeline.queue.counters()?.next,
        };
        load.defers_events = false;
        pipeline.set_readback(load);
        // No later event is processed until what was read is recorded.
        pipeline.stop_at(Some(after));
        self.phase = Phase::Closing {
            after,
            quiet: quiet.is_some(),
            doubts,
        };
        Ok(())
    }
}

fn count_ranges(doubts: &Doubts) -> usize {
    doubts.values().map(|doubt| doubt.ranges.len()).sum()
}

impl Reading {
    /// Adds what has come to be in doubt since. Returns how many page ranges with stores are among
    /// it.
    fn join(&mut self, pipeline: &mut Pipeline) -> Result<usize, Error> {
        let since = std::mem::take(&mut pipeline.shadow.doubts);
        pipeline.shadow.begin_reading(&since);
        let mut found = 0;
        for (file, doubt) in &since {
            self.doubts.entry(*file).or_default().join(doubt);
            if doubt.stores {
                found += doubt.ranges.len();
                pipeline.shadow.clean(*file, doubt)?;
                let late = self.late.entry(*file).or_default();
                late.join(&doubt.stored_ranges());
            }
        }
        Ok(found)
    }
}
