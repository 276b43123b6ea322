//! What a device takes for the parts of a batch's way, by its own clock: a few batches after the others, so
//! that timing costs none of those.

use std::ops::Range;
use std::time::{Duration, Instant};

use control::shutdown::Shutdown;
use gpu::Times;
use router::engine::Worker;
use router::frames::Frames;
use router::gpu::{Gpu, Timed};
use serde_json::{Value, json};

use super::Process;
use super::measure::float;
use super::subject::Subject;
use super::told::{About, short};

/// How many batches are timed.
const BATCHES: usize = 32;
const FEW: usize = 3;

/// Spans of time, in order and apart from each other.
type Spans = Vec<Range<u64>>;

#[derive(Clone, Debug)]
pub(super) struct Timeline {
    /// Each stream's part of each batch.
    batches: Vec<Vec<Timed>>,
    /// Of the device's memory, in bytes per nanosecond.
    bandwidth: f64,
}

/// Of one batch, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// None where nothing is copied.
    copy_in: Option<u64>,
    kernel: u64,
    copy_out: Option<u64>,
    /// From the first part's beginning to the last one's end.
    whole: u64,
    /// How much of the copies went on while a kernel ran.
    overlapped: Option<f64>,
}

impl Process {
    /// Has the device time batches of these frames, over and over, if that is wanted.
    pub(super) fn timed(
        &self,
        tables: &impl Subject,
        about: &About,
        frames: &Frames,
        shutdown: &Shutdown,
    ) -> Option<Timeline> {
        let wanted = self.timeline && !frames.is_empty() && !shutdown.requested();
        let gpu = tables.device().filter(|_| wanted)?;
        let timeline = Timeline::of(gpu, about, frames, self.duration);
        // What was measured before is worth as much without.
        timeline
            .inspect_err(|error| tracing::warn!("--timeline: {error}"))
            .ok()
    }
}

impl Timeline {
    /// For so long at most, once there are a few.
    fn of(
        gpu: &Gpu,
        about: &About,
        frames: &Frames,
        most: Duration,
    ) -> Result<Self, router::gpu::Error> {
        let (began, mut batches) = (Instant::now(), Vec::new());
        let mut all = (0..frames.len()).cycle().map(|at| frames.get(at));
        if let Some(processor) = gpu.timed_processor(about.function)? {
            let mut worker = Worker::new(processor, about.batch);
            while batches.len() <= BATCHES && (batches.len() <= FEW || began.elapsed() < most) {
                worker.decide(all.by_ref().take(about.batch))?;
                let timed = worker.processor().timed()?;
                batches.push(timed.into_iter().flatten().collect());
            }
            // Buffers grew for the first one, and kernels were made ready.
            batches.remove(0);
        }
        Ok(Self {
            batches,
            bandwidth: gpu.bandwidth()?,
        })
    }

    /// In the order of the time that they took.
    fn figures(&self) -> Vec<(Figures, &[Timed])> {
        let mut all: Vec<_> = self
            .batches
            .iter()
            .filter_map(|parts| Some((Figures::of(parts)?, parts.as_slice())))
            .collect();
        all.sort_by_key(|(figures, _)| figures.whole);
        all
    }

    /// What kernels would take if they did nothing but move bytes as copies within the device do.
    fn floor_ns(&self) -> f64 {
        let parts = self.batches.last().into_iter().flatten();
        let moved: usize = parts.map(|part| part.moved).sum();
        float(moved as u64) / self.bandwidth
    }

    pub(super) fn json(&self) -> Value {
        let all = self.figures();
        let us = |of: &dyn Fn(&Figures) -> Option<u64>| {
            median(all.iter().filter_map(|(figures, _)| of(figures).map(float))).map(|ns| ns / 1e3)
        };
        let overlapped = all.iter().filter_map(|(figures, _)| figures.overlapped);
        let spans = all.get(all.len() / 2).map(|(_, parts)| spans(parts));
        json!({
            "batches": all.len(),
            "copy_in_us": us(&|figures| figures.copy_in),
            "kernel_us": us(&|figures| Some(figures.kernel)),
            "copy_out_us": us(&|figures| figures.copy_out),
            "batch_us": us(&|figures| Some(figures.whole)),
            "overlapped": median(overlapped),
            "kernel_floor_us": self.floor_ns() / 1e3,
            "memory_gb_per_s": self.bandwidth,
            "spans": spans,
        })
    }

    pub(super) fn text(&self) -> String {
        let all = self.figures();
        let us = |of: &dyn Fn(&Figures) -> Option<u64>| {
            let ns = median(all.iter().filter_map(|(figures, _)| of(figures).map(float)));
            ns.map_or_else(|| "-".to_owned(), |ns| format!("{} us", short(ns / 1e3)))
        };
        let mut text = format!(
            "  by the device's clock, median of {} batches: copy in {}  kernels {}  copy out {}  together {}\n",
            all.len(),
            us(&|figures| figures.copy_in),
            us(&|figures| Some(figures.kernel)),
            us(&|figures| figures.copy_out),
            us(&|figures| Some(figures.whole)),
        );
        text += &format!(
            "  kernels move what takes {} us at the {} GB/s of the device's memory, or more",
            short(self.floor_ns() / 1e3),
            short(self.bandwidth),
        );
        let overlapped = median(all.iter().filter_map(|(figures, _)| figures.overlapped));
        if let Some(share) = overlapped {
            text += &format!("; {:.0} % of copying beside kernels", 100.0 * share);
        }
        text + "\n"
    }
}

impl Figures {
    /// None where nothing was timed.
    fn of(parts: &[Timed]) -> Option<Self> {
        let times = || parts.iter().map(|part| &part.times);
        let there = joined(times().filter_map(|times| times.there.clone()));
        let kernels = joined(times().flat_map(|times| times.kernels.iter().cloned()));
        let back = joined(times().filter_map(|times| times.back.clone()));
        let copies = joined(there.iter().chain(&back).cloned());
        let all = joined(copies.iter().chain(&kernels).cloned());
        let copied = length(&copies);
        Some(Self {
            copy_in: (!there.is_empty()).then(|| length(&there)),
            kernel: length(&kernels),
            copy_out: (!back.is_empty()).then(|| length(&back)),
            whole: all.last()?.end - all.first()?.start,
            overlapped: (copied > 0).then(|| {
                // What is in both is in one of them twice.
                let both = copied + length(&kernels) - length(&all);
                float(both) / float(copied)
            }),
        })
    }
}

/// One batch as it was drawn out in time: from its beginning, in microseconds.
fn spans(parts: &[Timed]) -> Vec<Value> {
    let named = |times: &Times| {
        let mut named: Vec<(&str, Range<u64>)> = Vec::new();
        named.extend(times.there.clone().map(|span| ("copy in", span)));
        named.extend(times.kernels.iter().map(|span| ("kernel", span.clone())));
        named.extend(times.back.clone().map(|span| ("copy out", span)));
        named
    };
    let all: Vec<Vec<_>> = parts.iter().map(|part| named(&part.times)).collect();
    let first = all.iter().flatten().map(|(_, span)| span.start).min();
    let us = |at: u64| float(at - first.unwrap_or(at)) / 1e3;
    let all = all.iter().enumerate();
    let spans = all.flat_map(|(stream, named)| named.iter().map(move |named| (stream, named)));
    spans
        .map(|(stream, (part, span))| {
            json!({"stream": stream, "part": part, "start_us": us(span.start), "end_us": us(span.end)})
        })
        .collect()
}

/// What is in any of them.
fn joined(spans: impl Iterator<Item = Range<u64>>) -> Spans {
    let mut all: Spans = spans.collect();
    all.sort_by_key(|span| span.start);
    let mut joined: Spans = Vec::new();
    for span in all {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
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

    fn of(spans: &[(u64, u64)]) -> Spans {
        spans.iter().map(|(start, end)| *start..*end).collect()
    }

    fn part(there: Range<u64>, kernels: &[(u64, u64)], back: Range<u64>) -> Timed {
        Timed {
            times: Times {
                there: Some(there),
                kernels: of(kernels),
                back: Some(back),
            },
            moved: 4000,
        }
    }

    #[test]
    fn copies_beside_kernels_of_another_stream_are_told_from_those_alone() {
        // The second part is copied while the first one's kernel runs.
        let parts = [
            part(1000..3000, &[(3000, 7000)], 7000..8000),
            part(3000..5000, &[(7000, 11_000)], 11_000..12_000),
        ];
        let figures = Figures::of(&parts).unwrap();
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
        let drawn = spans(&parts);
        assert_eq!(drawn.len(), 6);
        assert_eq!(
            drawn[3],
            json!({"stream": 1, "part": "copy in", "start_us": 2.0, "end_us": 4.0})
        );
        let timeline = Timeline {
            batches: vec![parts.to_vec()],
            bandwidth: 2.0,
        };
        let told = timeline.json();
        assert_eq!(told["kernel_floor_us"], 4.0);
        assert_eq!(told["overlapped"], 0.5);
        assert!(timeline.text().contains("50 % of copying beside kernels"));
    }

    #[test]
    fn one_stream_does_one_thing_after_the_other_and_mapped_memory_is_not_copied() {
        let one = [part(0..10, &[(10, 20), (20, 25)], 25..30)];
        let figures = Figures::of(&one).unwrap();
        assert_eq!(figures.overlapped, Some(0.0));
        assert_eq!((figures.kernel, figures.whole), (15, 30));
        let mapped = [Timed {
            times: Times {
                kernels: of(&[(5, 9)]),
                ..Times::default()
            },
            moved: 0,
        }];
        let figures = Figures::of(&mapped).unwrap();
        assert_eq!((figures.copy_in, figures.overlapped), (None, None));
        assert!(Figures::of(&[]).is_none());
    }
}
