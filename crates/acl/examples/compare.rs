//! Times lookups beside a peer's: passes of both processes alternate strictly, over the same rules
//! and the same key bytes, and their answers must agree.
//!
//!     compare RULES [PEER [ordinary]]
//!
//! RULES is ClassBench text, with keys in RULES_trace. Two key sets: the trace, and uniform ones.
//! SIMD names the only instructions to time (Portable, Avx2, Avx512), TUNING the milliseconds in which
//! the build may try shapes. Prints the median of the paired ratios (peer's time / ours) and their least and greatest.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a measurement for the terminal"
)]

use std::env;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use acl::{BATCH, Classifier, Key4, Options, Simd, classbench, generate};
use serde_json::{Value, json};

const PASSES: usize = 9;
/// Keys of a set.
const KEYS: usize = 256 << 10;

fn main() {
    let mut arguments = env::args().skip(1);
    let path = PathBuf::from(arguments.next().expect("the rules"));
    let rules = classbench::rules(read(&path)).unwrap();
    let sets = [
        shuffled(classbench::trace(read(&with_suffix(&path, "_trace"))).unwrap()),
        generate::keys_anywhere(KEYS, 7),
    ];
    let mut options = Options::default();
    if let Ok(milliseconds) = env::var("TUNING") {
        options.tuning = Duration::from_millis(milliseconds.parse().unwrap());
    }
    let own = Classifier::build(&rules, options).unwrap();
    println!(
        "{} {} rules {:?}",
        path.display(),
        rules.len(),
        own.report()
    );
    let mut peer = arguments
        .next()
        .map(|program| Peer::start(Path::new(&program), &path, write_keys(&sets), arguments));
    let wanted = env::var("SIMD").ok();
    let own = Simd::available().fold((own, Vec::new()), |(own, mut levels), simd| {
        levels.push(simd);
        (own, levels)
    });
    let (mut own, levels) = own;
    for &simd in &levels {
        if wanted
            .as_ref()
            .is_some_and(|wanted| *wanted != format!("{simd:?}"))
        {
            continue;
        }
        own = own.with_simd(simd);
        for (set, keys) in sets.iter().enumerate() {
            compare(&own, simd, set, keys, peer.as_mut());
        }
    }
}

/// Alternates passes of both and prints what came out.
fn compare(
    own: &Classifier<u32>,
    simd: Simd,
    set: usize,
    keys: &[Key4],
    mut peer: Option<&mut Peer>,
) {
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // Alone there is no pair to tell noise from: more passes, of which the least counts.
    for _ in 0..if peer.is_some() { PASSES } else { 8 * PASSES } {
        let (time, checksum) = pass(own, keys);
        ours.push(time);
        if let Some(peer) = &mut peer {
            let (other, sum) = peer.pass(set);
            assert!(
                sum == checksum,
                "answers differ: {checksum} here, {sum} there"
            );
            theirs.push(other);
            ratios.push(other / time);
        }
    }
    let name = ["rules", "uniform"][set];
    print!("  {name:8} {simd:?}: {}", spread(&mut ours));
    if let Some(peer) = peer {
        print!("  rte_acl {}: {}", peer.level, spread(&mut theirs));
        print!("  ratio {}", spread(&mut ratios));
    }
    println!();
}

/// After a pass that warms the caches: nanoseconds for a key, and the sum of (position + 1) * (rule + 1), 0 for no rule.
fn pass(own: &Classifier<u32>, keys: &[Key4]) -> (f64, u64) {
    let mut all = vec![0; keys.len()];
    own.classify(keys, &mut all);
    let terms = (1u64..).zip(all);
    let sum = terms.fold(0u64, |sum, (at, rule)| {
        sum.wrapping_add(at.wrapping_mul(u64::from(rule.wrapping_add(1))))
    });
    let mut found = vec![0; BATCH];
    let started = Instant::now();
    for keys in keys.chunks(BATCH) {
        own.classify(keys, &mut found[..keys.len()]);
        black_box(&found);
    }
    let time = started.elapsed().as_secs_f64() * 1e9 / keys.len() as f64;
    (time, sum)
}

fn spread(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    let (least, most) = (values[0], values[values.len() - 1]);
    format!("{:.2} ({least:.2}..{most:.2})", values[values.len() / 2])
}

struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    files: Vec<PathBuf>,
    /// The instructions that it found to be the fastest.
    level: String,
}

impl Peer {
    fn start(
        program: &Path,
        rules: &Path,
        files: Vec<PathBuf>,
        words: impl Iterator<Item = String>,
    ) -> Self {
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut peer = Self {
            child,
            input,
            output,
            files,
            level: String::new(),
        };
        println!("  rte_acl: {}", line(&mut peer.output));
        let load = json!({ "do": "load", "engine": "rte_acl", "table": rules });
        println!("  rte_acl: {}", peer.ask(&load));
        peer
    }

    fn pass(&mut self, set: usize) -> (f64, u64) {
        let [keys, answers] = [&self.files[set], &self.files[self.files.len() - 1]];
        let answer = self.ask(&json!({ "do": "pass", "keys": keys, "answers": answers, "ms": 0 }));
        self.level = answer["simd"].as_str().unwrap().into();
        (
            answer["ns"].as_f64().unwrap(),
            answer["checksum"].as_u64().unwrap(),
        )
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.input, "{request}").unwrap();
        let answer = line(&mut self.output);
        assert!(answer["error"].is_null(), "{answer}");
        answer
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        remove(&self.files);
    }
}

fn line(from: &mut impl BufRead) -> Value {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

fn read(path: &Path) -> BufReader<File> {
    BufReader::new(File::open(path).unwrap())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// In a random order, so that keys of one rule do not follow each other, repeated or cut to size.
fn shuffled(mut keys: Vec<Key4>) -> Vec<Key4> {
    let mut state = 7u64;
    for at in (1..keys.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        keys.swap(at, (state >> 33) as usize % (at + 1));
    }
    keys.iter().cycle().take(KEYS).copied().collect()
}

/// A file for each set, and last an empty one of answers.
fn write_keys(sets: &[Vec<Key4>]) -> Vec<PathBuf> {
    let folder = env::temp_dir();
    let mut files = Vec::new();
    for (set, keys) in sets.iter().enumerate() {
        let path = folder.join(format!("acl-keys-{}-{set}", std::process::id()));
        let mut file = BufWriter::new(File::create(&path).unwrap());
        for key in keys {
            file.write_all(&[key.protocol, 0, 0, 0]).unwrap();
            file.write_all(&key.source).unwrap();
            file.write_all(&key.destination).unwrap();
            file.write_all(&key.source_port).unwrap();
            file.write_all(&key.destination_port).unwrap();
        }
        file.flush().unwrap();
        files.push(path);
    }
    // No answers are known beforehand.
    let answers = folder.join(format!("acl-answers-{}", std::process::id()));
    File::create(&answers).unwrap();
    files.push(answers);
    files
}

fn remove(files: &[PathBuf]) {
    for file in files {
        let _ = fs::remove_file(file);
    }
}
