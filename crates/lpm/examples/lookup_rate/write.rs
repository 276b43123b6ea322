//! Routes, keys and answers as flat files that every engine reads: numbers of the machine's byte
//! order, IPv6 addresses as packets carry them.

use std::fs;
use std::path::Path;

use lpm::{Prefix, Rib};

use crate::common::{Random, Rng, answer, inside, ranges, real};

const KEYS4: usize = 1 << 22;
const KEYS6: usize = 1 << 21;

pub(crate) fn write(folder: &Path, hops: u64, seed: u64) {
    let corpus = sys::require::corpus().expect("LOWROAD_CORPUS names the folder of the table");
    fs::create_dir_all(folder).unwrap();
    let rib: Rib<u32> = real(&corpus, hops);
    let out = Out::new(folder, "v4", &rib, |address| address.to_ne_bytes().to_vec());
    let mut rng = Rng(seed);
    let all: Vec<_> = rib.iter().map(|(prefix, _)| prefix).collect();
    out.keys("uniform", &routed(&out, KEYS4, |_| rng.next() as u32));
    out.keys("per-prefix", &per_prefix(&all, KEYS4, &mut rng));
    out.keys("zipf", &zipf(&all, KEYS4, &mut rng));
    let step = |at: usize| 0x0100_0000u32.wrapping_add((at as u32).wrapping_mul(671));
    out.keys("sequential", &routed(&out, KEYS4, step));

    let rib: Rib<u128> = real(&corpus, hops);
    let out = Out::new(folder, "v6", &rib, |address| address.to_be_bytes().to_vec());
    let all: Vec<_> = rib.iter().map(|(prefix, _)| prefix).collect();
    let short: Vec<_> = all
        .iter()
        .copied()
        .filter(|prefix| prefix.len() <= 32)
        .collect();
    out.keys("uniform-prefix", &per_prefix(&all, KEYS6, &mut rng));
    out.keys("in-32", &per_prefix(&short, KEYS6, &mut rng));
    out.keys("zipf6", &zipf(&all, KEYS6, &mut rng));
}

struct Out<'a, A, F> {
    folder: &'a Path,
    bytes: F,
    oracle: Vec<(A, u16)>,
}

impl<'a, A: Random, F: Fn(A) -> Vec<u8>> Out<'a, A, F> {
    fn new(folder: &'a Path, family: &str, rib: &Rib<A>, bytes: F) -> Self {
        let mut routes = Vec::new();
        for (prefix, hop) in rib {
            routes.extend(bytes(prefix.first()));
            routes.extend([prefix.len(), 0]);
            routes.extend(hop.get().to_ne_bytes());
        }
        fs::write(folder.join(format!("{family}.routes")), routes).unwrap();
        Self {
            folder,
            bytes,
            oracle: ranges(rib.iter()),
        }
    }

    fn keys(&self, name: &str, keys: &[A]) {
        let bytes: Vec<u8> = keys.iter().flat_map(|&key| (self.bytes)(key)).collect();
        let answers = keys.iter().map(|&key| answer(&self.oracle, key));
        let answers: Vec<u8> = answers.flat_map(u16::to_ne_bytes).collect();
        fs::write(self.folder.join(format!("{name}.keys")), bytes).unwrap();
        fs::write(self.folder.join(format!("{name}.answers")), answers).unwrap();
    }
}

/// Addresses that have a route.
fn routed<F>(out: &Out<'_, u32, F>, count: usize, address: impl FnMut(usize) -> u32) -> Vec<u32> {
    let all = (0..).map(address);
    all.filter(|&key| answer(&out.oracle, key) != lpm::NO_ROUTE)
        .take(count)
        .collect()
}

/// A random address of a random prefix.
fn per_prefix<A: Random>(prefixes: &[Prefix<A>], count: usize, rng: &mut Rng) -> Vec<A> {
    let pick = |_| inside(prefixes[rng.below(prefixes.len())], rng);
    (0..count).map(pick).collect()
}

/// A random address of a prefix that is drawn in proportion to 1/rank, ranks being random.
fn zipf<A: Random>(prefixes: &[Prefix<A>], count: usize, rng: &mut Rng) -> Vec<A> {
    let mut ranked = prefixes.to_vec();
    for at in (1..ranked.len()).rev() {
        ranked.swap(at, rng.below(at + 1));
    }
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=ranked.len())
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let pick = |_| {
        let draw = rng.unit() * sum;
        let rank = cumulative.partition_point(|&upto| upto <= draw);
        inside(ranked[rank.min(ranked.len() - 1)], rng)
    };
    (0..count).map(pick).collect()
}
