//! Decides when what is in doubt is read, and when that is done with: between two numbers of events, so that what
//! was told before is said before, and what was told meanwhile after.

use std::time::{Duration, Instant};

use super::dirty::Doubts;
use super::file_reader::FileReader;
use super::pipeline::{Pipeline, ReadbackLoad};
use super::rescan::TreeScan;
use super::{Error, Listener, Options};

/// Who tells only where it was written is read from so often, while nothing is synced, and so often a file system
/// is made to commit its journal that has data in it.
const JOURNAL_INTERVAL: Duration = Duration::from_millis(200);

/// After a file has changed while it was read, the next reading begins so much later, and twice as late each time.
const PAUSE: Duration = Duration::from_millis(5);
/// But not later than this many times.
const MAX_PAUSE: u32 = 32;
/// Readings follow each other so many times without a pause, while each has at most half as much to read.
const ROUNDS: u32 = 16;
/// Stores to mapped files that come while their pages are written back are followed so many times, until they are few.
const PASSES: u32 = 8;
const BATCH: usize = 2;

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
    /// When the last one ended, and for how many pauses the next one waits.
    ended: Instant,
    pauses: u32,
    /// Readings that followed each other without a pause.
    rounds: u32,
}

/// How far what is in doubt has been read.
#[derive(Debug)]
enum Phase {
    Idle,
    /// Stores from now on are seen; what was told until `after` comes before what is read.
    Armed {
        after: u64,
        reading: Reading,
    },
    /// Read; what was told until `after` may have been read as well.
    Closing {
        after: u64,
        quiet: bool,
        doubts: Doubts,
    },
}

/// What is to be read.
#[derive(Debug, Default)]
struct Reading {
    doubts: Doubts,
    /// Of those, stores since: a page may have been written back when it was told to be dirty, and not marked yet. They
    /// stay in doubt, and a file is as it has been read only if they are the same before and after.
    late: Doubts,
    passes: u32,
}

/// What a call of [`Readback::advance`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// Nothing.
    Waits,
    /// More can be done once the events that are there have been derived from.
    GoesOn,
    /// What was read has been said, and nothing been derived since. Where no operation was under way, it may be an epoch.
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

    /// Has the whole tree compared with the log, with what is in doubt first.
    pub(super) fn request_rescan(&mut self) {
        self.rescan = true;
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Goes on reading what is in doubt.
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
                // What is in doubt since is read by the next call: its writer may go on for ever.
                Ok(Advance::Ends { quiet })
            }
            waiting => {
                self.phase = waiting;
                Ok(Advance::Waits)
            }
        }
    }

    /// Whether what has changed during a reading is to be read at once: it is much less than was read, so that the next
    /// reading takes less time, and less can change meanwhile. All of these read twice as much as the first at most.
    fn converges(&mut self, ranges: usize, pipeline: &Pipeline) -> bool {
        let since = count_ranges(&pipeline.shadow.doubts);
        let few = since > 0 && since <= ranges / 2 && self.rounds < ROUNDS;
        let converges = few && !self.has_interval(pipeline);
        self.rounds += u32::from(converges);
        converges
    }

    /// Whether what is in doubt is to be read now: what is written again and again is read once.
    pub(super) fn is_ripe(&self, pipeline: &Pipeline) -> bool {
        self.until_ripe(pipeline).is_zero()
    }

    /// For how long what is in doubt may wait yet, if nothing is synced.
    pub(super) fn until_ripe(&self, pipeline: &Pipeline) -> Duration {
        // Whatever else is in doubt, no epoch ends before names are known.
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

    /// Has stores to what is in doubt seen from now on.
    fn arm(&mut self, pipeline: &mut Pipeline) -> Result<(), Error> {
        let doubts = std::mem::take(&mut pipeline.shadow.doubts);
        pipeline.shadow.begin_reading(&doubts);
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
        let reading = Reading {
            doubts,
            ..Reading::default()
        };
        self.phase = Phase::Armed { after, reading };
        Ok(())
    }

    /// Events before `from` have been derived from.
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
        // Nothing is derived until all has been read: what was told before, also of a file that is about to be
        // found, is there to be read, and what is written from now on is told once more.
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
        // Nothing is derived from what comes behind until it has been said.
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
    /// Takes up what has come to be in doubt since; how many ranges of pages that were stored to are among it.
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
