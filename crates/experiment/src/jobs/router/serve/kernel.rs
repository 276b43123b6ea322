//! Lookups in the kernel, in one BPF program each: the XDP router's arrays, and the map type that the
//! kernel has for prefixes. Runs are short, because the CPU does nothing else meanwhile.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libbpf_rs::{
    MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, ProgramInput, ProgramMut,
};
use lpm::{Capacity4, Fib4, Layout4, Rib};
use sys::huge::Region;

use super::keys::Keys;
use super::{LoadAnswer, loaded};
use crate::jobs::router::engine::PassAnswer;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lookup.bpf.o"));

/// `CHUNK` of the router's tables.h.
const CHUNK: usize = 4096;
/// Lookups of a run of the program.
const RUN_LEN: usize = 1 << 15;
/// Keys are in a map of constant size. More keys are ignored.
const MAX_KEYS: usize = 1 << 22;

/// The kind of map that the program looks up in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKind {
    Arrays,
    Trie,
}

/// The loaded program with its tables.
pub(super) struct Kernel {
    object: Object,
    by: MapKind,
    /// Writes the arrays, and keeps them mapped.
    _table: Option<Fib4>,
}

impl Kernel {
    pub(super) fn load(by: MapKind, rib: Rib<u32>) -> Result<(Self, LoadAnswer)> {
        let room = Capacity4::of(&rib, 1);
        let object = open(&room, rib.len())?;
        let start = Instant::now();
        let (table, bytes) = match by {
            MapKind::Arrays => {
                let table = Fib4::build_in(rib, Layout4::Bytes, &room, &mut |section| {
                    let name = format!("v4_{}", section.name);
                    let map = map(&object, &name).map_err(std::io::Error::other)?;
                    Region::shared(map.as_fd(), section.bytes.next_multiple_of(CHUNK))
                })?;
                let bytes = table.bytes();
                (Some(table), bytes)
            }
            MapKind::Trie => {
                let trie = map(&object, "trie")?;
                fill(&trie, &rib)?;
                (None, accounted(&trie)?)
            }
        };
        let loaded = loaded(start, bytes);
        let kernel = Self {
            object,
            by,
            _table: table,
        };
        Ok((kernel, loaded))
    }

    /// As [`super::timed`].
    pub(super) fn pass(&self, keys: &Keys, ms: f64) -> Result<PassAnswer> {
        let count = keys.v4.len().min(MAX_KEYS);
        if keys.hops.len() < count {
            bail!("every key needs its answer");
        }
        let words = keys.v4.iter().flat_map(|key| key.to_ne_bytes());
        put(&map(&self.object, "keys")?, words.take(4 * count))?;
        let answers = keys
            .hops
            .iter()
            .map(|&hop| u16::try_from(hop).unwrap_or(u16::MAX));
        let answers = answers.take(count).flat_map(u16::to_ne_bytes);
        put(&map(&self.object, "answers")?, answers)?;
        let (check, time) = match self.by {
            MapKind::Arrays => ("check_arrays", "time_arrays"),
            MapKind::Trie => ("check_trie", "time_trie"),
        };
        let (mut checksum, mut wrong) = (0_u64, 0);
        let program = self.program(check)?;
        for begin in (0..count).step_by(RUN_LEN) {
            let ran = run(&program, begin, RUN_LEN.min(count - begin))?;
            checksum = checksum.wrapping_add(ran[2]);
            wrong += ran[3];
        }
        let program = self.program(time)?;
        let (start, mut lookups, mut took) = (Instant::now(), 0, Duration::ZERO);
        // The kernel's trie takes a second for all keys: whole runs instead of whole passes.
        for begin in (0..count).step_by(RUN_LEN).cycle() {
            if lookups > 0 && took.as_secs_f64() * 1e3 >= ms {
                break;
            }
            let share = RUN_LEN.min(count - begin);
            run(&program, begin, share)?;
            lookups += share as u64;
            took = start.elapsed();
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of lookups")]
        let ns = took.as_secs_f64() * 1e9 / lookups.max(1) as f64;
        Ok(PassAnswer {
            ns,
            lookups,
            wrong,
            checksum,
            simd: None,
        })
    }

    fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        let mut programs = self.object.progs_mut();
        let found = programs.find(|program| program.name() == name);
        found.with_context(|| format!("no program {name}"))
    }
}

fn open(room: &Capacity4, routes: usize) -> Result<Object> {
    let mut open = ObjectBuilder::default()
        .name("lookup")?
        .open_memory(OBJECT)
        .context("opening the lookup program")?;
    let sections = room.sections(Layout4::Bytes);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let section = name.strip_prefix("v4_");
        let section = section.and_then(|name| sections.iter().find(|at| at.name == name));
        let entries = match name.as_str() {
            "keys" => 4 * MAX_KEYS / CHUNK,
            "answers" => 2 * MAX_KEYS / CHUNK,
            "trie" => routes.max(1),
            _ => match section {
                Some(section) => section.bytes.div_ceil(CHUNK),
                None => continue,
            },
        };
        map.set_max_entries(u32::try_from(entries)?)?;
    }
    open.load().context("loading the lookup program")
}

fn map(object: &Object, name: &str) -> Result<MapHandle> {
    let found = object.maps().find(|map| map.name() == name);
    Ok(MapHandle::try_from(
        &found.with_context(|| format!("no map {name}"))?,
    )?)
}

/// Writes bytes into an array of chunks from its beginning.
fn put(map: &MapHandle, bytes: impl Iterator<Item = u8>) -> Result<()> {
    debug_assert_eq!(map.map_type(), MapType::Array);
    let mut chunk = Vec::with_capacity(CHUNK);
    let mut at = 0_u32;
    let mut bytes = bytes.peekable();
    while bytes.peek().is_some() {
        chunk.clear();
        chunk.extend(bytes.by_ref().take(CHUNK));
        chunk.resize(CHUNK, 0);
        map.update(&at.to_ne_bytes(), &chunk, MapFlags::ANY)?;
        at += 1;
    }
    Ok(())
}

fn fill(trie: &MapHandle, rib: &Rib<u32>) -> Result<()> {
    for (prefix, hop) in rib {
        let mut key = u32::from(prefix.len()).to_ne_bytes().to_vec();
        key.extend(prefix.first().to_be_bytes());
        let hop = u32::from(hop.get()).to_ne_bytes();
        trie.update(&key, &hop, MapFlags::ANY)?;
    }
    Ok(())
}

/// The memory that the kernel charges for a map.
fn accounted(map: &MapHandle) -> Result<usize> {
    let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    let bytes = bytes.and_then(|bytes| bytes.trim().parse().ok());
    bytes.context("the kernel does not report the map's memory")
}

/// Where a run began, how many lookups it made, their sum, and how many were wrong.
fn run(program: &ProgramMut<'_>, begin: usize, count: usize) -> Result<[u64; 4]> {
    let words = [begin as u64, count as u64, 0, 0];
    let packet: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut out = vec![0; packet.len()];
    let input = ProgramInput {
        data_in: Some(&packet),
        data_out: Some(&mut out),
        ..ProgramInput::default()
    };
    let ran = program.test_run(input).context("running the lookup")?;
    if ran.return_value != 2 {
        bail!("the lookup program ended with {}", ran.return_value);
    }
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(out.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    Ok(words)
}
