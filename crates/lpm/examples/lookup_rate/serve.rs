//! Our engines as a process that makes passes on request. Lookups go through a reader, as in a
//! program that changes the table at the same time.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use lpm::{Address, Fib4, Fib6, Layout4, Layout6, NextHop, Prefix, Reader4, Reader6, Rib, Simd};
use sys::huge::{Array, Backing};

const BATCH: usize = 256;

/// An engine that was built.
enum Engine {
    V4(Reader4),
    V6(Reader6),
}

struct Server {
    folder: PathBuf,
    engines: HashMap<String, Engine>,
    traffics: HashMap<String, Traffic>,
}

/// Keys in huge pages, as the other process has them.
struct Traffic {
    keys: Array<AtomicU8>,
    answers: Vec<u16>,
}

pub(crate) fn serve(folder: &Path) {
    let mut server = Server {
        folder: folder.into(),
        engines: HashMap::new(),
        traffics: HashMap::new(),
    };
    println!("{{\"ready\":\"lowroad\"}}");
    for line in stdin().lines() {
        let line = line.unwrap();
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["pass", engine, traffic] => server.pass(engine, traffic),
            _ => panic!("write: pass ENGINE TRAFFIC"),
        }
    }
}

impl Server {
    fn pass(&mut self, name: &str, traffic_name: &str) {
        if !self.engines.contains_key(name) {
            let engine = build(&self.folder, name);
            self.engines.insert(name.into(), engine);
        }
        if !self.traffics.contains_key(traffic_name) {
            let traffic = Traffic::read(&self.folder, traffic_name);
            self.traffics.insert(traffic_name.into(), traffic);
        }
        let engine = self.engines.get_mut(name).unwrap();
        let traffic = &self.traffics[traffic_name];
        let (ns, wrong) = match engine {
            Engine::V4(reader) => {
                let keys: &[u32] = traffic.keys();
                timed(keys, &traffic.answers, |keys, hops| {
                    reader.lookup_batch(keys, hops);
                })
            }
            Engine::V6(reader) => {
                let keys: &[[u8; 16]] = traffic.keys();
                timed(keys, &traffic.answers, |keys, hops| {
                    reader.lookup_batch(keys, hops);
                })
            }
        };
        println!(
            "{{\"engine\":\"{name}\",\"traffic\":\"{traffic_name}\",\"ns\":{ns:.4},\"wrong\":{wrong}}}"
        );
    }
}

/// Nanoseconds per lookup of a pass, and the wrong answers of the pass before it.
fn timed<K>(
    keys: &[K],
    answers: &[u16],
    mut look_up: impl FnMut(&[K], &mut [u16]),
) -> (f64, usize) {
    let (batches, _) = keys.as_chunks::<BATCH>();
    let mut hops = [0; BATCH];
    let mut wrong = 0;
    for (keys, answers) in batches.iter().zip(answers.chunks(BATCH)) {
        look_up(keys, &mut hops);
        wrong += hops.iter().zip(answers).filter(|(a, b)| a != b).count();
    }
    let start = Instant::now();
    for keys in batches {
        look_up(keys, &mut hops);
        std::hint::black_box(&mut hops);
    }
    let ns = start.elapsed().as_secs_f64() * 1e9 / (batches.len() * BATCH) as f64;
    (ns, wrong)
}

/// `bytes-avx512`, `words-portable`, `paged-avx2` and so on.
fn build(folder: &Path, name: &str) -> Engine {
    let (layout, simd) = name.split_once('-').expect("LAYOUT-SIMD");
    let simd = Simd::available().find(|known| known.name() == simd);
    let simd = simd.expect("instructions that this machine has");
    match layout {
        "bytes" => build4(folder, name, Layout4::Bytes, simd),
        "mixed" => build4(folder, name, Layout4::Mixed, simd),
        "words" => build4(folder, name, Layout4::Words, simd),
        "paged" => build6(folder, name, Layout6::Paged, simd),
        "flat" => build6(folder, name, Layout6::Flat, simd),
        other => panic!("no layout {other}"),
    }
}

fn build4(folder: &Path, name: &str, layout: Layout4, simd: Simd) -> Engine {
    let rib = routes::<u32, 4>(folder, "v4", u32::from_ne_bytes);
    let start = Instant::now();
    let table = Fib4::build(rib, layout).unwrap().with_simd(simd);
    built(name, start, table.rib().bytes(), table.bytes());
    Engine::V4(table.reader())
}

fn build6(folder: &Path, name: &str, layout: Layout6, simd: Simd) -> Engine {
    let rib = routes::<u128, 16>(folder, "v6", u128::from_be_bytes);
    let start = Instant::now();
    let table = Fib6::build(rib, layout).unwrap().with_simd(simd);
    built(name, start, table.rib().bytes(), table.bytes());
    Engine::V6(table.reader())
}

fn built(name: &str, start: Instant, rib: usize, table: usize) {
    let seconds = start.elapsed().as_secs_f64();
    let [rib, table] = [rib, table].map(|bytes| bytes as f64 / f64::from(1 << 20));
    eprintln!("{name}: table of {table:.2} MiB built in {seconds:.3} s, RIB of {rib:.1} MiB");
}

/// Records of an address, a length, a zero and a next hop.
fn routes<A: Address, const N: usize>(
    folder: &Path,
    family: &str,
    address: impl Fn([u8; N]) -> A,
) -> Rib<A> {
    let routes = fs::read(folder.join(format!("{family}.routes"))).unwrap();
    let records = routes.chunks_exact(N + 4).map(|record| {
        let (first, rest) = record.split_first_chunk().unwrap();
        let hop = NextHop::new(u16::from_ne_bytes([rest[2], rest[3]])).unwrap();
        (Prefix::new(address(*first), rest[0]).unwrap(), hop)
    });
    records.collect()
}

impl Traffic {
    fn read(folder: &Path, name: &str) -> Self {
        let mut bytes = Vec::new();
        let open = |ending| File::open(folder.join(format!("{name}.{ending}"))).unwrap();
        open("keys").read_to_end(&mut bytes).unwrap();
        let keys: Array<AtomicU8> = Array::new(bytes.len(), Backing::Huge).unwrap();
        for (cell, byte) in keys.iter().zip(bytes) {
            cell.store(byte, Ordering::Relaxed);
        }
        let mut bytes = Vec::new();
        open("answers").read_to_end(&mut bytes).unwrap();
        let (answers, _) = bytes.as_chunks();
        let answers = answers
            .iter()
            .map(|&bytes| u16::from_ne_bytes(bytes))
            .collect();
        Self { keys, answers }
    }

    /// The keys as `K`, of which any bytes are one.
    fn keys<K: Copy>(&self) -> &[K] {
        // SAFETY: aligned to 2 MiB, and no one writes to it any more; `K` is an integer or bytes.
        let (before, keys, after) = unsafe { self.keys.align_to() };
        assert!(before.is_empty() && after.is_empty());
        keys
    }
}
