//! The partition of a key, chosen as by Kafka's own clients. Consumers that join topics by key thus find both sides in
//! partitions with the same number.

/// The partition of a key in a topic with `partitions` partitions.
pub(super) fn partition(key: &[u8], partitions: usize) -> usize {
    let positive = murmur2(key) & 0x7fff_ffff;
    positive as usize % partitions.max(1)
}

/// `MurmurHash2` with Kafka's seed.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let (words, tail) = data.as_chunks::<4>();
    let hash = words.iter().fold(SEED ^ length, |hash, word| {
        let k = u32::from_le_bytes(*word).wrapping_mul(M);
        let k = (k ^ (k >> 24)).wrapping_mul(M);
        hash.wrapping_mul(M) ^ k
    });
    let hash = match tail {
        [] => hash,
        tail => {
            let last = tail
                .iter()
                .rev()
                .fold(0, |last, byte| last << 8 | u32::from(*byte));
            (hash ^ last).wrapping_mul(M)
        }
    };
    let hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_kafkas_clients() {
        // From the tests of org.apache.kafka.common.utils.Utils.
        for (text, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()).cast_signed(), hash, "{text}");
        }
    }
}
