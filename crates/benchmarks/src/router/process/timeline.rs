//! The times of the parts of a batch, by the device's own clock. A few batches are timed after the others,
//! because timing slows them down.

use std::ops::Range;
use std::time::Instant;

use gpu::Times;
use process::shutdown::Shutdown;
use router::engine::Worker;
use router::frames::Frames;
use router::gpu::{BatchTimes, Gpu};

use super::Options;
use super::measurement::float;
use crate::router::engine::MeasuredEngine;

/// Batches that are timed.
const BATCHES: usize = 32;
/// The minimum number of timed batches, however long they take.
const MIN_BATCHES: usize = 3;

/// Intervals of time, in order and disjoint.
type Intervals = Vec<Range<u64>>;

/// Medians over batches; times in nanoseconds, none where a part does not occur.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Batches that were timed.
    pub batches: usize,
    pub copy_in_ns: Option<f64>,
    pub kernel_ns: Option<f64>,
    pub copy_out_ns: Option<f64>,
    /// From the beginning of the first part to the end of the last one.
    pub batch_ns: Option<f64>,
    /// The share of copying during which a kernel ran.
    pub overlapped: Option<f64>,
    /// The time of kernels that only move their bytes, at the bandwidth of copies within the device.
    pub kernel_floor_ns: f64,
    /// Of the device's memory, in bytes per nanosecond.
    pub bandwidth: f64,
    /// The parts of the batch with the median time.
    pub spans: Option<Vec<Span>>,
}

/// A part of a batch, from the batch's beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub stream: usize,
    /// `copy in`, `kernel` or `copy out`.
    pub part: &'static str,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// The times of one batch, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// None where nothing is copied.
    copy_in: Option<u64>,
    kernel: u64,
    copy_out: Option<u64>,
    /// From the beginning of the first part to the end of the last one.
    whole: u64,
    /// The share of copying during which a kernel ran.
    overlapped: Option<f64>,
}

impl Timeline {
    /// Times batches of these frames on the device, over and over, if the options ask for it.
    pub(super) fn measure(
        engine: &impl MeasuredEngine,
        options: &Options,
        frames: &Frames,
        shutdown: &Shutdown,
    ) -> Option<Self> {
        let wanted = options.timeline && !frames.is_empty() && !shutdown.requested();
        let gpu = engine.device().filter(|_| wanted)?;
        let timed = time(gpu, options, frames);
        let timeline = timed.and_then(|batches| Ok(Self::new(&batches, gpu.bandwidth()?)));
        // The run's results are valid without it.
        timeline
            .inspect_err(|error| tracing::warn!("--timeline: {error}"))
            .ok()
    }

    /// From each stream's part of each batch, and the bandwidth in bytes per nanosecond.
    fn new(batches: &[Vec<BatchTimes>], bandwidth: f64) -> Self {
        let mut all: Vec<_> = batches
            .iter()
            .filter_map(|parts| Some((Figures::new(parts)?, parts.as_slice())))
            .collect();
        all.sort_by_key(|(figures, _)| figures.whole);
        let ns = |of: &dyn Fn(&Figures) -> Option<u64>| {
            median(all.iter().filter_map(|(figures, _)| of(figures).map(float)))
        };
        let parts = batches.last().into_iter().flatten();
        let moved: usize = parts.map(|part| part.moved).sum();
        Self {
            batches: all.len(),
            copy_in_ns: ns(&|figures| figures.copy_in),
            kernel_ns: ns(&|figures| Some(figures.kernel)),
            copy_out_ns: ns(&|figures| figures.copy_out),
            batch_ns: ns(&|figures| Some(figures.whole)),
            overlapped: median(all.iter().filter_map(|(figures, _)| figures.overlapped)),
            kernel_floor_ns: float(moved as u64) / bandwidth,
            bandwidth,
            spans: all.get(all.len() / 2).map(|(_, parts)| spans(parts)),
        }
    }
}

/// Each stream's part of each batch: for at most the run's duration, but at least a few batches.
fn time(
    gpu: &Gpu,
    options: &Options,
    frames: &Frames,
) -> Result<Vec<Vec<BatchTimes>>, router::gpu::Error> {
    let (began, mut batches) = (Instant::now(), Vec::new());
    let Some(processor) = gpu.timed_processor(options.function)? else {
        return Ok(batches);
    };
    let mut all = (0..frames.len()).cycle().map(|at| frames.get(at));
    let mut worker = Worker::new(processor, options.batch);
    while batches.len() <= BATCHES
        && (batches.len() <= MIN_BATCHES || began.elapsed() < options.duration)
    {
        worker.decide(all.by_ref().take(options.batch))?;
        let timed = worker.processor().batch_times()?;
        batches.push(timed.into_iter().flatten().collect());
    }
    // The first one is slower: buffers grow, and kernels are prepared.
    batches.remove(0);
    Ok(batches)
}

impl Figures {
    /// None where nothing was timed.
    fn new(parts: &[BatchTimes]) -> Option<Self> {
        let times = || parts.iter().map(|part| &part.times);
        let there = merged(times().filter_map(|times| times.upload.clone()));
        let kernels = merged(times().flat_map(|times| times.kernels.iter().cloned()));
        let back = merged(times().filter_map(|times| times.download.clone()));
        let copies = merged(there.iter().chain(&back).cloned());
        let all = merged(copies.iter().chain(&kernels).cloned());
        let copied = length(&copies);
        Some(Self {
            copy_in: (!there.is_empty()).then(|| length(&there)),
            kernel: length(&kernels),
            copy_out: (!back.is_empty()).then(|| length(&back)),
            whole: all.last()?.end - all.first()?.start,
            overlapped: (copied > 0).then(|| {
                // The sum of both lengths counts the intersection twice.
                let both = copied + length(&kernels) - length(&all);
                float(both) / float(copied)
            }),
        })
    }
}

/// The parts of one batch, stream by stream.
fn spans(parts: &[BatchTimes]) -> Vec<Span> {
    let named = |times: &Times| {
        let mut named: Vec<(&'static str, Range<u64>)> = Vec::new();
        named.extend(times.upload.clone().map(|span| ("copy in", span)));
        named.extend(times.kernels.iter().map(|span| ("kernel", span.clone())));
        named.extend(times.download.clone().map(|span| ("copy out", span)));
        named
    };
    let all: Vec<Vec<_>> = parts.iter().map(|part| named(&part.times)).collect();
    let first = all.iter().flatten().map(|(_, span)| span.start).min();
    let first = first.unwrap_or(0);
    let all = all.into_iter().enumerate();
    let spans = all.flat_map(|(stream, named)| {
        named.into_iter().map(move |(part, span)| Span {
            stream,
            part,
            start_ns: span.start - first,
            end_ns: span.end - first,
        })
    });
    spans.collect()
}

/// The union of intervals.
fn merged(spans: impl Iterator<Item = Range<u64>>) -> Intervals {
    let mut all: Intervals = spans.collect();
    all.sort_by_key(|span| span.start);
    let mut merged: Intervals = Vec::new();
    for span in all {
        match merged.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

fn length(spans: &[Range<u64>]) -> u64 {
    spans.iter().map(|span| span.end - span.start).sum()
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spans: &[(u64, u64)]) -> Intervals {
        spans.iter().map(|(start, end)| *start..*end).collect()
    }

    fn part(there: Range<u64>, kernels: &[(u64, u64)], back: Range<u64>) -> BatchTimes {
        BatchTimes {
            times: Times {
                upload: Some(there),
                kernels: of(kernels),
                download: Some(back),
            },
            moved: 4000,
        }
    }

    #[test]
    fn overlapped_copies_are_distinguished() {
        // The second part is copied while the first one's kernel runs.
        let parts = [
            part(1000..3000, &[(3000, 7000)], 7000..8000),
            part(3000..5000, &[(7000, 11_000)], 11_000..12_000),
        ];
        let figures = Figures::new(&parts).unwrap();
        assert_eq!(
            figures,
            Figures {
                copy_in: Some(4000),
                kernel: 8000,
                copy_out: Some(2000),
                whole: 11_000,
                // 2 us there and 1 us back, of six.
                overlapped: Some(0.5),
            }
        );
        let spans = spans(&parts);
        assert_eq!(spans.len(), 6);
        let second_copy = Span {
            stream: 1,
            part: "copy in",
            start_ns: 2000,
            end_ns: 4000,
        };
        assert_eq!(spans[3], second_copy);
        let timeline = Timeline::new(&[parts.to_vec()], 2.0);
        assert!((timeline.kernel_floor_ns - 4000.0).abs() < 1e-9);
        assert_eq!(timeline.overlapped, Some(0.5));
    }

    #[test]
    fn one_stream_overlaps_nothing() {
        let one = [part(0..10, &[(10, 20), (20, 25)], 25..30)];
        let figures = Figures::new(&one).unwrap();
        assert_eq!(figures.overlapped, Some(0.0));
        assert_eq!((figures.kernel, figures.whole), (15, 30));
        let mapped = [BatchTimes {
            times: Times {
                kernels: of(&[(5, 9)]),
                ..Times::default()
            },
            moved: 0,
        }];
        let figures = Figures::new(&mapped).unwrap();
        assert_eq!((figures.copy_in, figures.overlapped), (None, None));
        assert!(Figures::new(&[]).is_none());
    }
}
