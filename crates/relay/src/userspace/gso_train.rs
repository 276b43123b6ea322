//! Joins consecutive datagrams into trains that one `UDP_SEGMENT` call sends.

use super::fan_out::Train;

/// Maximum segments of a train: the kernel's limit before 6.9.
const MAX_SEGMENTS: usize = 64;
/// Maximum bytes of a train, with room for any headers below 64 KiB.
const MAX_BYTES: usize = 65_000;

/// Joins consecutive datagrams of equal size, TTL and TOS by copying them into `staging`. The last one of a
/// train may be shorter. Other datagrams stay as they are, in order.
///
/// Datagrams above `limit` bytes are too big for some subscriber and are not joined: a train is refused as a
/// whole, and a shorter last datagram would be lost with it.
pub(super) fn join<'a>(
    trains: &[Train<'a>],
    limit: usize,
    staging: &'a mut Vec<u8>,
) -> Vec<Train<'a>> {
    staging.clear();
    let trains: Vec<_> = trains
        .iter()
        .flat_map(|train| fitting(*train, limit))
        .collect();
    let runs: Vec<_> = runs(&trains, limit).collect();
    for run in runs.iter().filter(|run| run.len() > 1) {
        for train in *run {
            staging.extend_from_slice(train.payload);
        }
    }
    let mut staged = &staging[..];
    let joined = |run: &&[Train<'a>]| {
        let first = run[0];
        if run.len() == 1 {
            return first;
        }
        let bytes = run.iter().map(|train| train.payload.len()).sum();
        let (payload, rest) = staged.split_at(bytes);
        staged = rest;
        Train {
            payload,
            segment: u16::try_from(first.payload.len()).ok(),
            ..first
        }
    };
    runs.iter().map(joined).collect()
}

/// A train as it is or, if its datagrams are above the limit, its datagrams one by one.
fn fitting<'a>(train: Train<'a>, limit: usize) -> impl Iterator<Item = Train<'a>> {
    let too_big = train.segment.is_some_and(|size| usize::from(size) > limit);
    let whole = (!too_big).then_some(train);
    let parts = too_big.then(|| train.cut()).into_iter().flatten();
    whole.into_iter().chain(parts)
}

fn runs<'t, 'a>(trains: &'t [Train<'a>], limit: usize) -> impl Iterator<Item = &'t [Train<'a>]> {
    let mut rest = trains;
    std::iter::from_fn(move || {
        let length = run_length(rest, limit)?;
        let (run, after) = rest.split_at(length);
        rest = after;
        Some(run)
    })
}

fn run_length(trains: &[Train<'_>], limit: usize) -> Option<usize> {
    let first = trains.first()?;
    let size = first.payload.len();
    if first.segment.is_some() || size == 0 || size > limit {
        return Some(1);
    }
    let mut length = 1;
    let longest = MAX_SEGMENTS.min(MAX_BYTES / size).max(1);
    while length < longest
        && let Some(next) = trains.get(length)
        && next.segment.is_none()
        && (next.ttl, next.tos) == (first.ttl, first.tos)
        && (1..=size).contains(&next.payload.len())
    {
        length += 1;
        if next.payload.len() < size {
            break;
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(payload: &[u8], ttl: u8) -> Train<'_> {
        Train {
            payload,
            segment: None,
            ttl,
            tos: 0,
        }
    }

    /// Payload length and segment size of each train after joining.
    fn shape(trains: &[Train<'_>], limit: usize) -> Vec<(usize, Option<u16>)> {
        let mut staging = Vec::new();
        let joined = join(trains, limit, &mut staging);
        let before: Vec<u8> = trains
            .iter()
            .flat_map(|train| train.payload)
            .copied()
            .collect();
        let after: Vec<u8> = joined
            .iter()
            .flat_map(|train| train.payload)
            .copied()
            .collect();
        assert_eq!(before, after);
        joined
            .iter()
            .map(|train| (train.payload.len(), train.segment))
            .collect()
    }

    #[test]
    fn equal_neighbours_join_and_a_shorter_one_ends_the_run() {
        let bytes: Vec<u8> = (0..=255).collect();
        let sizes = [100, 100, 60, 60, 70];
        let trains: Vec<_> = sizes
            .iter()
            .map(|size| single(&bytes[..*size], 64))
            .collect();
        assert_eq!(
            shape(&trains, 65_507),
            [(260, Some(100)), (60, None), (70, None)]
        );
    }

    #[test]
    fn other_headers_and_empty_payloads_are_not_joined() {
        let trains = [
            single(&[1, 2], 64),
            single(&[3, 4], 63),
            single(&[], 63),
            single(&[], 63),
        ];
        assert_eq!(
            shape(&trains, 65_507),
            [(2, None), (2, None), (0, None), (0, None)]
        );
    }

    #[test]
    fn trains_keep_to_the_kernels_limits() {
        let small = [5; 10];
        let trains = vec![single(&small, 64); 65];
        assert_eq!(shape(&trains, 65_507), [(640, Some(10)), (10, None)]);
        let large = vec![6; 40_000];
        let trains = vec![single(&large, 64); 2];
        assert_eq!(shape(&trains, 65_507), [(40_000, None), (40_000, None)]);
    }

    #[test]
    fn what_is_too_big_for_some_travels_alone() {
        let (large, small) = ([7; 900], [8; 5]);
        let trains = [single(&large, 64), single(&small, 64), single(&small, 64)];
        assert_eq!(shape(&trains, 800), [(900, None), (10, Some(5))]);
        let superframe = Train {
            segment: Some(300),
            ..single(&large, 64)
        };
        assert_eq!(shape(&[superframe], 300), [(900, Some(300))]);
        assert_eq!(shape(&[superframe], 299), [(300, None); 3]);
    }
}
