//! A log-linear histogram: exact below 256, then 128 buckets an octave (0.8 % wide at most); twin of
//! lowroad/histogram.h.

use serde::{Deserialize, Serialize};

/// The number of buckets. The last one also holds every value from 2^38 on, 275 s in nanoseconds.
pub const BUCKETS: usize = 4096;
/// Half the width of a bucket, as a share of its values at most.
pub const RESOLUTION: f64 = 1.0 / 256.0;

/// Buckets of an octave, and its binary logarithm: below twice as many, buckets are exact.
const PER_OCTAVE: usize = 128;
const PER_OCTAVE_LOG2: usize = 7;

/// Counts by bucket; merging adds. A quantile is interpolated within its bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SparseCounts")]
pub struct Histogram {
    /// (bucket, count) of the buckets that are not empty, ascending.
    #[serde(rename = "buckets")]
    counts: Vec<(u16, u64)>,
}

/// A stored histogram names buckets that do not exist, or not in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("histogram buckets must ascend and stay below {BUCKETS}")]
pub struct InvalidBucket;

impl Histogram {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a dense array of counts, as a BPF map holds it: index is bucket.
    ///
    /// # Errors
    /// When a bucket past the last one is not empty.
    pub fn from_counts(counts: &[u64]) -> Result<Self, InvalidBucket> {
        let mut histogram = Self::default();
        for (bucket, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            histogram.add(bucket, count)?;
        }
        Ok(histogram)
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.insert(bucket(value), 1);
    }

    /// Adds `count` values to one bucket.
    ///
    /// # Errors
    /// The bucket does not exist.
    pub fn add(&mut self, bucket: usize, count: u64) -> Result<(), InvalidBucket> {
        if bucket >= BUCKETS {
            return Err(InvalidBucket);
        }
        if count > 0 {
            self.insert(bucket, count);
        }
        Ok(())
    }

    /// Reads the bucket numbers as those of schema 1, which had 32 buckets an octave and covered every u64.
    ///
    /// # Errors
    /// When there was no such bucket.
    pub fn convert_schema_1(&self) -> Result<Self, InvalidBucket> {
        const OLD_BUCKETS: usize = 1920;
        let mut converted = Self::default();
        for (old, count) in self.buckets() {
            if old >= OLD_BUCKETS {
                return Err(InvalidBucket);
            }
            let shift = (old / 32).saturating_sub(1);
            let lower = ((old - shift * 32) as u64) << shift;
            let middle = lower + ((1_u64 << shift) - 1) / 2;
            converted.add(bucket(middle), count)?;
        }
        Ok(converted)
    }

    pub fn merge(&mut self, other: &Self) {
        for &(bucket, count) in &other.counts {
            self.insert(usize::from(bucket), count);
        }
    }

    /// Values counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|&(_, count)| count).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// (bucket, count) of the buckets that are not empty, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.counts
            .iter()
            .map(|&(bucket, count)| (usize::from(bucket), count))
    }

    /// The value at quantile `q`, or nothing when fewer than ten values lie beyond it (above, or
    /// below where `q` is under one half): such a quantile would be an anecdote.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let beyond = q.min(1.0 - q);
        // Written as a product, so that 1 - 0.99 = 0.010000000000000009 does not cost a value.
        let enough = (float(self.count()) * beyond + 1e-9) >= 10.0;
        enough.then(|| self.quantile_unchecked(q)).flatten()
    }

    /// Third quartile less first.
    pub fn iqr(&self) -> Option<f64> {
        Some(self.quantile(0.75)? - self.quantile(0.25)?)
    }

    /// Mean of bucket midpoints.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = self
            .buckets()
            .map(|(bucket, count)| midpoint(bucket) * float(count))
            .sum();
        (!self.is_empty()).then(|| sum / float(self.count()))
    }

    /// The smallest value the lowest bucket can hold.
    pub fn min(&self) -> Option<u64> {
        self.buckets().next().map(|(bucket, _)| lower_bound(bucket))
    }

    /// The largest value the highest bucket can hold.
    pub fn max(&self) -> Option<u64> {
        self.buckets().last().map(|(bucket, _)| upper_bound(bucket))
    }

    /// Steps of the empirical distribution: (bucket midpoint, share of values up to it), the last
    /// share being 1.
    pub fn ecdf(&self) -> Vec<(f64, f64)> {
        let total = float(self.count());
        let mut below = 0;
        self.buckets()
            .map(|(bucket, count)| {
                below += count;
                (midpoint(bucket), float(below) / total)
            })
            .collect()
    }

    fn insert(&mut self, bucket: usize, count: u64) {
        let bucket = u16::try_from(bucket).unwrap_or(u16::MAX);
        match self.counts.binary_search_by_key(&bucket, |&(at, _)| at) {
            Ok(found) => self.counts[found].1 += count,
            Err(place) => self.counts.insert(place, (bucket, count)),
        }
    }

    fn quantile_unchecked(&self, q: f64) -> Option<f64> {
        let rank = q * float(self.count());
        let mut below = 0;
        for (bucket, count) in self.buckets() {
            if float(below + count) >= rank {
                let (lower, upper) = (float(lower_bound(bucket)), float(upper_bound(bucket)));
                // As if the values of a bucket were spread evenly over it: the only one is in the middle.
                let place = ((rank - float(below) - 0.5) / float(count)).clamp(0.0, 1.0);
                return Some(lower + (upper - lower) * if count == 1 { 0.5 } else { place });
            }
            below += count;
        }
        None
    }
}

impl Extend<u64> for Histogram {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, values: I) {
        for value in values {
            self.record(value);
        }
    }
}

/// The stored form, checked before it becomes a histogram.
#[derive(Deserialize)]
struct SparseCounts {
    buckets: Vec<(u16, u64)>,
}

impl TryFrom<SparseCounts> for Histogram {
    type Error = InvalidBucket;

    fn try_from(stored: SparseCounts) -> Result<Self, InvalidBucket> {
        let counts = stored.buckets;
        let ascending = counts.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let known = counts
            .last()
            .is_none_or(|&(bucket, _)| usize::from(bucket) < BUCKETS);
        if ascending && known {
            Ok(Self { counts })
        } else {
            Err(InvalidBucket)
        }
    }
}

/// The bucket a value belongs to.
pub fn bucket(value: u64) -> usize {
    let octave = value.checked_ilog2().unwrap_or(0) as usize;
    let shift = octave.saturating_sub(PER_OCTAVE_LOG2);
    let bucket = shift * PER_OCTAVE + usize::try_from(value >> shift).unwrap_or(0);
    bucket.min(BUCKETS - 1)
}

/// The smallest value of a bucket.
pub fn lower_bound(bucket: usize) -> u64 {
    let shift = (bucket / PER_OCTAVE).saturating_sub(1);
    ((bucket - shift * PER_OCTAVE) as u64) << shift
}

/// The largest value of a bucket; of the last one, as if it did not hold all larger values too.
fn upper_bound(bucket: usize) -> u64 {
    lower_bound(bucket + 1) - 1
}

fn midpoint(bucket: usize) -> f64 {
    f64::midpoint(float(lower_bound(bucket)), float(upper_bound(bucket)))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts past 2^53 do not occur, and buckets end far below"
)]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_tile_every_value() {
        for at in 0..BUCKETS {
            assert_eq!(bucket(lower_bound(at)), at);
            assert_eq!(bucket(upper_bound(at)), at);
        }
        assert_eq!(bucket(1 << 38), BUCKETS - 1);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_quantile_needs_ten_values_beyond_it() {
        let mut histogram = Histogram::new();
        histogram.extend(std::iter::repeat_n(7, 999));
        assert_eq!(histogram.quantile(0.99), None);
        histogram.record(7);
        assert_eq!(histogram.quantile(0.99), Some(7.0));
        assert_eq!(histogram.quantile(0.999), None);
        assert_eq!(histogram.quantile(1.0), None);
        assert_eq!(histogram.iqr(), Some(0.0));
    }

    #[test]
    fn quantiles_are_interpolated() {
        // A thousand values that fill one bucket evenly.
        let (lower, upper) = (lower_bound(bucket(100_000)), upper_bound(bucket(100_000)));
        let mut histogram = Histogram::new();
        histogram.extend((0..1000).map(|at| lower + (upper - lower) * at / 999));
        for q in [0.1, 0.5, 0.9] {
            let exact = float(lower) + q * float(upper - lower);
            assert!((histogram.quantile(q).unwrap() - exact).abs() < 2.0);
        }
    }

    #[test]
    fn buckets_of_schema_1_are_converted() {
        let stored = |buckets: &str| serde_json::from_str::<Histogram>(buckets).unwrap();
        // 32 buckets an octave: the 64th was 64 to 65, the 500th 851968 to 868351.
        let converted = stored(r#"{"buckets":[[63,2],[64,1],[500,7]]}"#).convert_schema_1();
        let at = |value| bucket(value);
        let all: Vec<_> = converted.unwrap().buckets().collect();
        assert_eq!(all, [(at(63), 2), (at(64), 1), (at(860_159), 7)]);
        assert!(
            stored(r#"{"buckets":[[1920,1]]}"#)
                .convert_schema_1()
                .is_err()
        );
    }

    #[test]
    fn small_values_are_exact() {
        let mut histogram = Histogram::new();
        histogram.extend(1..=60);
        assert_eq!(histogram.quantile(0.5), Some(30.0));
        assert_eq!(histogram.mean(), Some(30.5));
        assert_eq!((histogram.min(), histogram.max()), (Some(1), Some(60)));
        assert_eq!(histogram.ecdf()[29], (30.0, 0.5));
    }

    #[test]
    fn empty_histogram_has_no_quantiles() {
        let histogram = Histogram::new();
        assert_eq!(histogram.quantile(0.5), None);
        assert_eq!(histogram.mean(), None);
        assert_eq!((histogram.min(), histogram.max()), (None, None));
        assert!(histogram.ecdf().is_empty());
    }

    #[test]
    fn a_stored_histogram_is_checked() {
        let read = serde_json::from_str::<Histogram>;
        assert_eq!(read(r#"{"buckets":[[3,2],[9,1]]}"#).unwrap().count(), 3);
        assert!(read(r#"{"buckets":[[9,1],[3,2]]}"#).is_err());
        assert!(read(r#"{"buckets":[[4096,1]]}"#).is_err());
    }

    #[test]
    fn a_dense_array_past_the_last_bucket_is_refused() {
        let mut counts = vec![0; BUCKETS + 1];
        counts[5] = 4;
        assert_eq!(Histogram::from_counts(&counts).unwrap().count(), 4);
        counts[BUCKETS] = 1;
        assert_eq!(Histogram::from_counts(&counts), Err(InvalidBucket));
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(value in 0u64..1 << 38) {
            let at = bucket(value);
            prop_assert!(lower_bound(at) <= value && value <= upper_bound(at));
            let width = float(upper_bound(at) - lower_bound(at));
            prop_assert!(width <= float(value) * 2.0 * RESOLUTION);
        }

        #[test]
        fn merging_is_recording_all(
            a in proptest::collection::vec(any::<u64>(), 0..200),
            b in proptest::collection::vec(any::<u64>(), 0..200),
        ) {
            let (mut left, mut right, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
            left.extend(a.iter().copied());
            right.extend(b.iter().copied());
            both.extend(a.into_iter().chain(b));
            left.merge(&right);
            prop_assert_eq!(&left, &both);
            let text = serde_json::to_string(&left).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), left);
        }

        #[test]
        fn a_quantile_is_within_a_bucket_of_the_sorted_value(
            mut values in proptest::collection::vec(1u64..1_000_000_000, 40..400),
            q in 0.3f64..0.7,
        ) {
            let mut histogram = Histogram::new();
            histogram.extend(values.iter().copied());
            values.sort_unstable();
            let rank = (q * float(values.len() as u64)).ceil();
            let exact = values.iter().enumerate()
                .find(|(i, _)| float(*i as u64 + 1) >= rank)
                .map(|(_, &value)| value)
                .unwrap();
            let read = histogram.quantile(q).unwrap();
            prop_assert!((read - float(exact)).abs() <= float(exact) * 2.0 * RESOLUTION + 0.5);
        }
    }
}
