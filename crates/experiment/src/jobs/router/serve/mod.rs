//! Our engines as a process that does what requests say: see [`super::engine`]. Lookups of prefixes go
//! through a reader, as in a program that changes its table meanwhile.

mod kernel;
mod keys;
mod update;

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use acl::{Classifier, Key4, Options, Rule4, classbench};
use anyhow::{Context, Result, bail};
use lpm::{Address, Fib4, Fib6, Layout4, Layout6, NextHop, Prefix, Rib, Simd};
use serde_json::{Value, json};

use self::kernel::{Kernel, MapKind};
use self::keys::Keys;
use super::engine::{LoadAnswer, PassAnswer, Request};

/// Lookups asked for at once.
const BATCH: usize = 256;

/// Answers each line with a line, until the input ends.
///
/// # Errors
/// When the lines cannot be read or written; what a request asks wrongly is its answer.
pub fn serve(input: impl BufRead, mut output: impl Write) -> Result<()> {
    let ready = concat!("lowroad ", env!("CARGO_PKG_VERSION"));
    writeln!(output, "{}", json!({ "ready": ready }))?;
    output.flush()?;
    let mut server = Server::default();
    for line in input.lines() {
        let answer = server
            .answer(&line?)
            .unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

#[derive(Default)]
struct Server {
    table: Option<Table>,
    keys: Option<Keys>,
}

/// An engine with what it looks up in.
enum Table {
    V4(Fib4),
    V6(Box<Fib6>),
    Kernel(Kernel),
    Rules {
        rules: Vec<Rule4>,
        classifier: Classifier<u32>,
    },
}

impl Server {
    fn answer(&mut self, line: &str) -> Result<Value> {
        let request = serde_json::from_str(line).context("the request")?;
        match request {
            Request::Load { engine, table } => {
                self.table = None;
                let (table, loaded) = load(&engine, &table)?;
                self.table = Some(table);
                Ok(serde_json::to_value(loaded)?)
            }
            Request::Pass { keys, answers, ms } => {
                let table = self.table.as_ref().context("load comes first")?;
                let keys = Keys::keep(&mut self.keys, &keys, Some(&answers))?;
                Ok(serde_json::to_value(pass(table, keys, ms)?)?)
            }
            Request::Update {
                updates,
                keys,
                ms,
                offered,
            } => {
                // The update changes the table, so it must be loaded again.
                let table = self.table.take().context("load comes first")?;
                let keys = Keys::keep(&mut self.keys, &keys, None)?;
                let length = Duration::from_secs_f64(ms / 1e3);
                let updated = update::run(table, updates.as_deref(), keys, length, offered)?;
                Ok(serde_json::to_value(updated)?)
            }
        }
    }
}

/// `bytes-avx2`, `flat-avx512`, `acl-portable`, with a table from a file.
fn load(engine: &str, path: &Path) -> Result<(Table, LoadAnswer)> {
    let by = match engine {
        "bpf-arrays" => Some(MapKind::Arrays),
        "bpf_lpm_trie" => Some(MapKind::Trie),
        _ => None,
    };
    if let Some(by) = by {
        let file = std::fs::read(path).with_context(|| path.display().to_string())?;
        let (kernel, loaded) = Kernel::load(by, routes(&file, u32::from_ne_bytes)?)?;
        return Ok((Table::Kernel(kernel), loaded));
    }
    let unknown = || format!("no engine {engine}");
    let (layout, simd) = engine.split_once('-').with_context(unknown)?;
    let simd = Simd::available().find(|known| known.name() == simd);
    let simd = simd.with_context(|| format!("this machine cannot run {engine}"))?;
    let file = std::fs::read(path).with_context(|| path.display().to_string())?;
    if let Some(layout) = Layout4::ALL.into_iter().find(|l| l.name() == layout) {
        load4(&file, layout, simd)
    } else if let Some(layout) = Layout6::ALL.into_iter().find(|l| l.name() == layout) {
        load6(&file, layout, simd)
    } else if layout == "acl" {
        load_rules(&file, simd)
    } else {
        bail!(unknown())
    }
}

fn load4(file: &[u8], layout: Layout4, simd: Simd) -> Result<(Table, LoadAnswer)> {
    let rib = routes(file, u32::from_ne_bytes)?;
    let start = Instant::now();
    let table = Fib4::build(rib, layout)?.with_simd(simd);
    let loaded = loaded(start, table.bytes());
    Ok((Table::V4(table), loaded))
}

fn load6(file: &[u8], layout: Layout6, simd: Simd) -> Result<(Table, LoadAnswer)> {
    let rib = routes(file, u128::from_be_bytes)?;
    let start = Instant::now();
    let table = Fib6::build(rib, layout)?.with_simd(simd);
    let loaded = loaded(start, table.bytes());
    Ok((Table::V6(Box::new(table)), loaded))
}

fn load_rules(file: &[u8], simd: Simd) -> Result<(Table, LoadAnswer)> {
    let rules = classbench::rules(file)?;
    let start = Instant::now();
    let classifier = Classifier::build(&rules, Options::default())?.with_simd(simd);
    let loaded = loaded(start, classifier.report().bytes);
    Ok((Table::Rules { rules, classifier }, loaded))
}

fn loaded(start: Instant, bytes: usize) -> LoadAnswer {
    LoadAnswer {
        build_s: start.elapsed().as_secs_f64(),
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        mib: bytes as f64 / f64::from(1 << 20),
    }
}

fn routes<A: Address, const N: usize>(
    file: &[u8],
    address: impl Fn([u8; N]) -> A,
) -> Result<Rib<A>> {
    let mut rib = Rib::new();
    for (prefix, hop) in records(file, address)? {
        rib.insert(prefix, hop.context("a route without a next hop")?);
    }
    Ok(rib)
}

/// An announcement; a withdrawal has no next hop.
type Update<A> = (Prefix<A>, Option<NextHop>);

/// Records of an address, a length, a zero and a next hop.
fn records<A: Address, const N: usize>(
    file: &[u8],
    address: impl Fn([u8; N]) -> A,
) -> Result<Vec<Update<A>>> {
    let records = file.chunks_exact(N + 4).map(|record| {
        let (first, rest) = record.split_first_chunk().context("a record")?;
        let hop = NextHop::new(u16::from_ne_bytes([rest[2], rest[3]]));
        Ok((Prefix::new(address(*first), rest[0])?, hop))
    });
    records.collect()
}

fn pass(table: &Table, keys: &Keys, ms: f64) -> Result<PassAnswer> {
    Ok(match table {
        Table::Kernel(kernel) => kernel.pass(keys, ms)?,
        Table::V4(table) => {
            let mut reader = table.reader();
            timed(&keys.v4, &keys.hops, ms, |keys, hops| {
                reader.lookup_batch(keys, hops);
            })
        }
        Table::V6(table) => {
            let mut reader = table.reader();
            timed(&keys.v6, &keys.hops, ms, |keys, hops| {
                reader.lookup_batch(keys, hops);
            })
        }
        Table::Rules { classifier, .. } => {
            let look_up = |keys: &[Key4], found: &mut [u32]| classifier.classify(keys, found);
            timed(&keys.packets, &keys.rules, ms, look_up)
        }
    })
}

/// The result of a lookup for a key.
trait Answer: Copy + Default {
    /// As files have it: 0 for none.
    fn number(self) -> u32;
}

impl Answer for u16 {
    fn number(self) -> u32 {
        self.into()
    }
}

/// A rule counts from 0, and none is `acl::NONE`.
impl Answer for u32 {
    fn number(self) -> u32 {
        self.wrapping_add(1)
    }
}

/// One pass that warms the caches and is checked, then timed ones.
fn timed<K, H: Answer>(
    keys: &[K],
    answers: &[u32],
    ms: f64,
    mut look_up: impl FnMut(&[K], &mut [H]),
) -> PassAnswer {
    let mut found = [H::default(); BATCH];
    let (mut wrong, mut checksum, mut place) = (0, 0_u64, 0_usize);
    for keys in keys.chunks(BATCH) {
        let found = &mut found[..keys.len()];
        look_up(keys, found);
        for answer in found.iter().map(|found| found.number()) {
            let known = answers.get(place);
            wrong += u64::from(known.is_some_and(|&known| known != answer));
            place += 1;
            checksum = checksum.wrapping_add((place as u64).wrapping_mul(answer.into()));
        }
    }
    let start = Instant::now();
    let mut lookups = 0;
    let mut took = Duration::ZERO;
    while lookups == 0 || took.as_secs_f64() * 1e3 < ms {
        for keys in keys.chunks(BATCH) {
            look_up(keys, &mut found[..keys.len()]);
            black_box(&mut found);
        }
        lookups += keys.len() as u64;
        took = start.elapsed();
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of lookups")]
    let ns = took.as_secs_f64() * 1e9 / lookups.max(1) as f64;
    PassAnswer {
        ns,
        lookups,
        wrong,
        checksum,
        simd: None,
    }
}
