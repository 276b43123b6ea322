//! One thread's batches, from frames to decisions, with the time that each stage took.

use super::{Answers, Counters, Decision, Headers, Processor};

/// When the stages of a batch began and ended, by [`sys::clock::ticks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages {
    pub started: u64,
    /// The last header was read.
    pub gathered: u64,
    /// The last decision was made.
    pub processed: u64,
    /// Decisions were in the order of the packets, and counted.
    pub scattered: u64,
}

/// A processor and what it works on, used again for each batch.
#[derive(Debug)]
pub struct Worker<P> {
    processor: P,
    batch: usize,
    headers: Headers,
    answers: Answers,
    decisions: Vec<Decision>,
    counters: Counters,
}

impl<P: Processor> Worker<P> {
    /// For batches of so many packets.
    pub fn new(processor: P, batch: usize) -> Self {
        Self {
            headers: headers(&processor, batch),
            processor,
            batch,
            answers: Answers::default(),
            decisions: Vec::with_capacity(batch),
            counters: Counters::default(),
        }
    }

    /// Decides about a batch of Ethernet frames; `decisions` then has one for each.
    ///
    /// # Errors
    /// The processor's.
    #[inline]
    pub fn decide<'a>(
        &mut self,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Stages, P::Error> {
        self.decide_since(sys::clock::ticks(), frames)
    }

    /// As `decide`, of frames that were gathered from `started` on.
    ///
    /// # Errors
    /// The processor's.
    #[inline]
    pub fn decide_since<'a>(
        &mut self,
        started: u64,
        frames: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Stages, P::Error> {
        self.headers.clear();
        for frame in frames {
            self.headers.push(frame);
        }
        let gathered = sys::clock::ticks();
        self.processor
            .process_batch(&self.headers, &mut self.answers)?;
        let processed = sys::clock::ticks();
        self.headers
            .scatter(&self.answers, &mut self.decisions, &mut self.counters);
        Ok(Stages {
            started,
            gathered,
            processed,
            scattered: sys::clock::ticks(),
        })
    }

    /// About the frames of the last batch.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Of all batches.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    pub fn processor(&self) -> &P {
        &self.processor
    }

    pub fn processor_mut(&mut self) -> &mut P {
        &mut self.processor
    }

    /// Decides by this one from the next batch on; it is of the same function.
    pub fn replace(&mut self, processor: P) {
        self.headers = headers(&processor, self.batch);
        self.processor = processor;
    }
}

/// With what the processor reads.
fn headers(processor: &impl Processor, batch: usize) -> Headers {
    let headers = Headers::new(processor.function(), batch);
    if processor.reads_frames() {
        headers.with_frames()
    } else {
        headers
    }
}
