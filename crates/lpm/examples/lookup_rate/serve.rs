//! Our engines as a process that makes passes on request. Lookups go through a reader, as in a
//! program that changes the table at the same time.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use lpm::{Fib4, Layout4, NextHop, Prefix, Prefix4, Reader4, Rib, Simd};
use sys::huge::{Array, Backing};

const BATCH: usize = 256;

/// An engine that was built.
enum Engine {
    V4(Reader4),
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

pub fn serve(folder: &Path) {
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
                    reader.lookup_batch(keys, hops)
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

/// `bytes-avx512`, `words-portable` and so on.
fn build(folder: &Path, name: &str) -> Engine {
    let (layout, simd) = name.split_once('-').expect("LAYOUT-SIMD");
    let simd = Simd::available().find(|known| known.name() == simd);
    let simd = simd.expect("instructions that this machine has");
    let start = Instant::now();
    let layout = match layout {
        "bytes" => Layout4::Bytes,
        "mixed" => Layout4::Mixed,
        "words" => Layout4::Words,
        other => panic!("no layout {other}"),
    };
    let rib = routes4(folder);
    let read = start.elapsed();
    let table = Fib4::build(rib, layout).unwrap().with_simd(simd);
    eprintln!(
        "{name}: RIB {:.3} s {:.1} MiB, table {:.3} s {:.2} MiB",
        read.as_secs_f64(),
        mib(table.rib().bytes()),
        (start.elapsed() - read).as_secs_f64(),
        mib(table.bytes())
    );
    Engine::V4(table.reader())
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn routes4(folder: &Path) -> Rib<u32> {
    let routes = fs::read(folder.join("v4.routes")).unwrap();
    let (routes, _) = routes.as_chunks::<8>();
    let route = |&[a, b, c, d, len, _, low, high]: &[u8; 8]| {
        let address = u32::from_ne_bytes([a, b, c, d]);
        let hop = NextHop::new(u16::from_ne_bytes([low, high])).unwrap();
        let prefix: Prefix4 = Prefix::new(address, len).unwrap();
        (prefix, hop)
    };
    routes.iter().map(route).collect()
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
