//! Tables in memory that others map: read there as a program would that knows only what is documented
//! of the arrays; too little room; content that is restored, as it was or spoilt.

#![expect(clippy::cast_possible_truncation, reason = "tests on made-up numbers")]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use lpm::{
    Capacity4, Capacity6, Content, Error, Fib4, Fib6, Layout4, Layout6, NextHop, Prefix, Prefix4,
    Prefix6, Rib, Section,
};
use sys::huge::{Array, Region, Shared};

use crate::common::{Random, Rng, bounds, hop, hop_of, inside, longest};

/// A file of zeroes for each array, as a BPF map that can be mapped.
#[derive(Default)]
struct Files(HashMap<&'static str, (File, usize)>);

impl Files {
    fn provide(&mut self, section: &Section) -> io::Result<Region> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lowroad-lpm-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        fs::remove_file(path)?;
        file.set_len(section.bytes as u64)?;
        let region = Region::shared(&file, section.bytes)?;
        self.0.insert(section.name, (file, section.bytes));
        Ok(region)
    }

    fn map<T: Shared>(&self, name: &str) -> Array<T> {
        let (file, bytes) = &self.0[name];
        let region = Region::shared(file, *bytes).unwrap();
        Array::within(region, bytes / size_of::<T>()).unwrap()
    }
}

/// Looks up by the arrays of a table of words alone.
struct MappedReader4 {
    first: Array<AtomicU16>,
    page_of: Array<AtomicU16>,
    pages: Array<AtomicU32>,
    groups: Array<AtomicU16>,
}

impl MappedReader4 {
    fn lookup(&self, address: u32) -> u16 {
        let block = (address >> 8) as usize;
        let entry = self.first[block].load(Ordering::Acquire);
        if entry != u16::MAX {
            return entry;
        }
        let page = usize::from(self.page_of[block >> 8].load(Ordering::Relaxed));
        let group = self.pages[page << 8 | block & 255].load(Ordering::Relaxed) as usize;
        self.groups[group << 8 | address as usize & 255].load(Ordering::Relaxed)
    }
}

/// The same of a paged IPv6 table.
struct MappedReader6 {
    short: Array<AtomicU16>,
    version: Array<AtomicU64>,
    page_of: Array<AtomicU32>,
    pages: Array<AtomicU32>,
    cells: Array<AtomicU32>,
    lines: Array<AtomicU16>,
    deep: Array<AtomicU64>,
    steps: Array<AtomicU64>,
    answers: Array<AtomicU16>,
}

impl MappedReader6 {
    fn of(files: &Files) -> Self {
        Self {
            short: files.map("short"),
            version: files.map("version"),
            page_of: files.map("page_of"),
            pages: files.map("pages"),
            cells: files.map("cells"),
            lines: files.map("lines"),
            deep: files.map("deep"),
            steps: files.map("steps"),
            answers: files.map("answers"),
        }
    }

    fn lookup(&self, address: u128) -> u16 {
        assert_eq!(self.version[0].load(Ordering::Relaxed) % 2, 0);
        let x = (address >> 80) as u32 & 0xffff;
        let target = |entry: u32| {
            let part = x << (entry >> 26 & 15) >> 16;
            (entry.wrapping_add(part) & ((1 << 26) - 1)) as usize
        };
        let page = self.page_of[(address >> 108) as usize].load(Ordering::Relaxed) as usize;
        let at = page << 12 | (address >> 96) as usize & 0xfff;
        let mut entry = self.pages[at].load(Ordering::Acquire);
        if entry >> 30 == 0b11 {
            entry = self.cells[target(entry)].load(Ordering::Acquire);
        }
        let mut answer = entry as u16;
        if entry >> 31 == 1 {
            let line = &self.lines[target(entry) * 32..][..32];
            let below = |bound: &&AtomicU16| u32::from(bound.load(Ordering::Relaxed)) < x;
            let place = 16 + line[..15].iter().filter(below).count();
            answer = line[place].load(Ordering::Relaxed);
        }
        if answer >> 15 == 1 {
            let block = self.deep[usize::from(answer & 0x7fff)].load(Ordering::Acquire);
            let (start, len) = ((block >> 32) as usize, block as u32 as usize);
            let half = |at: usize| u128::from(self.steps[at].load(Ordering::Relaxed));
            let from = |at: &usize| half(2 * at) << 64 | half(2 * at + 1);
            let last = (start..start + len).rev().find(|at| from(at) <= address);
            answer = self.answers[last.unwrap()].load(Ordering::Relaxed);
        }
        if answer == 0 {
            return self.short[(address >> 112) as usize].load(Ordering::Relaxed);
        }
        answer
    }
}

/// Prefixes of all lengths that nest.
fn rib<A: Random>(around: &[Prefix<A>], count: usize, seed: u64) -> Rib<A> {
    let mut rng = Rng::new(seed);
    let prefix = |_| {
        let around = around[rng.index(around.len())];
        let len = around.len() + rng.index(usize::from(A::BITS - around.len()) + 1) as u8;
        Prefix::containing(inside(around, &mut rng), len).unwrap()
    };
    let prefixes: Vec<Prefix<A>> = (0..count).map(prefix).collect();
    prefixes
        .into_iter()
        .map(|prefix| (prefix, hop_of(prefix, 200)))
        .collect()
}

fn rib4() -> Rib<u32> {
    let around = ["0.0.0.0/0", "10.1.0.0/16", "10.1.2.0/24"].map(|text| text.parse().unwrap());
    rib(&around, 600, 3)
}

fn rib6() -> Rib<u128> {
    let around = [
        "::/0",
        "2001::/16",
        "2001:db8::/32",
        "2001:db8::/44",
        "2001:db8:1::/48",
    ];
    rib(&around.map(|text| text.parse().unwrap()), 1500, 4)
}

fn check<A: Random>(rib: &Rib<A>, lookup: impl Fn(A) -> u16) {
    let routes: Vec<_> = rib.iter().collect();
    for key in bounds(routes.iter().map(|&(prefix, _)| prefix)) {
        assert_eq!(lookup(key), longest(&routes, key), "{key:x?}");
    }
}

#[test]
fn ipv4_tables_can_be_read_by_mapping() {
    let mut files = Files::default();
    let all = rib4();
    let capacity = Capacity4::of(&all, 1);
    let layout = Layout4::Words;
    let mut fib = Fib4::build_in(Rib::new(), layout, &capacity, &mut |s| files.provide(s)).unwrap();
    assert_eq!(files.0.len(), capacity.sections(layout).len());
    let other = MappedReader4 {
        first: files.map("first"),
        page_of: files.map("page_of"),
        pages: files.map("pages"),
        groups: files.map("groups"),
    };
    for (prefix, hop) in &all {
        fib.insert(prefix, hop).unwrap();
    }
    check(&all, |key| other.lookup(key));
    let kept: Vec<_> = all.iter().step_by(2).collect();
    for &(prefix, _) in &kept {
        fib.remove(prefix);
    }
    check(fib.rib(), |key| other.lookup(key));
}

#[test]
fn ipv6_tables_can_be_read_by_mapping() {
    let mut files = Files::default();
    let all = rib6();
    let capacity = Capacity6::of(&all, 2).unwrap();
    let mut provide = |section: &Section| files.provide(section);
    let mut fib = Fib6::build_in(Rib::new(), Layout6::Paged, &capacity, &mut provide).unwrap();
    assert_eq!(files.0.len(), capacity.sections(Layout6::Paged).len());
    let other = MappedReader6::of(&files);
    for (prefix, hop) in &all {
        fib.insert(prefix, hop).unwrap();
    }
    check(&all, |key| other.lookup(key));
    for (prefix, _) in all.iter().step_by(2) {
        fib.remove(prefix).unwrap();
    }
    check(fib.rib(), |key| other.lookup(key));
}

#[test]
fn memory_that_is_too_short_is_refused() {
    let mut short = |section: &Section| Region::new(section.bytes / (4 << 20), 1, 0);
    let refused = Fib4::build_in(
        Rib::new(),
        Layout4::Bytes,
        &Capacity4::default(),
        &mut short,
    );
    let Err(Error::Memory { what: "first", .. }) = refused else {
        panic!("{refused:?}");
    };
}

#[test]
fn a_full_ipv4_table_stays_as_it_is() {
    let capacity = Capacity4::new(4, 2);
    let mut fib = Fib4::build_in(
        Rib::new(),
        Layout4::Bytes,
        &capacity,
        &mut Section::in_process,
    )
    .unwrap();
    let prefix = |text: &str| text.parse::<Prefix4>().unwrap();
    for text in ["10.0.0.0/25", "10.0.1.0/25", "10.1.0.0/25"] {
        fib.insert(prefix(text), hop(1)).unwrap();
    }
    let refused = fib.insert(prefix("10.2.0.0/25"), hop(2));
    assert!(
        matches!(refused, Err(Error::Pages { limit: 2 })),
        "{refused:?}"
    );
    fib.insert(prefix("10.1.1.0/25"), hop(1)).unwrap();
    let refused = fib.insert(prefix("10.1.2.0/25"), hop(2));
    assert!(
        matches!(refused, Err(Error::Groups { limit: 4 })),
        "{refused:?}"
    );
    assert_eq!((fib.rib().len(), fib.lookup(0x0a01_0200)), (4, None));
    // Retired memory is reused at once when no other is left.
    for _ in 0..10 {
        fib.remove(prefix("10.1.1.0/25"));
        fib.insert(prefix("10.1.2.0/25"), hop(2)).unwrap();
        fib.remove(prefix("10.1.2.0/25"));
        fib.insert(prefix("10.1.1.0/25"), hop(3)).unwrap();
    }
    check(fib.rib(), |key| fib.lookup(key).map_or(0, NextHop::get));
}

#[test]
fn a_full_ipv6_table_stays_as_it_is() {
    let capacity = Capacity6::new(1 << 16, 16, 16, 16);
    let mut fib = Fib6::build_in(
        Rib::new(),
        Layout6::Paged,
        &capacity,
        &mut Section::in_process,
    )
    .unwrap();
    let mut refused = 0;
    let all = rib6();
    for (prefix, hop) in &all {
        refused += usize::from(fib.insert(prefix, hop).is_err());
    }
    assert!(refused > 0 && !fib.rib().is_empty());
    assert_eq!(fib.rib().len() + refused, all.len());
    check(fib.rib(), |key| fib.lookup(key).map_or(0, NextHop::get));
    // Withdrawing needs no more room than there is, sooner or later.
    while !fib.rib().is_empty() {
        let left: Vec<_> = fib.rib().iter().map(|(prefix, _)| prefix).collect();
        let gone = left
            .iter()
            .rev()
            .filter(|prefix| fib.remove(**prefix).is_ok());
        assert!(gone.count() > 0);
    }
    let prefix: Prefix6 = "2001:db8::/44".parse().unwrap();
    for number in 1..1000 {
        fib.insert(prefix, hop(number)).unwrap();
    }
}

#[test]
fn unknown_readers_are_waited_for() {
    let capacity = Capacity6::new(4, 16, 16, 1 << 10);
    let mut fib = Fib6::build_in(
        Rib::new(),
        Layout6::Paged,
        &capacity,
        &mut Section::in_process,
    )
    .unwrap();
    let periods = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&periods);
    fib.set_grace(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let prefix: Prefix6 = "2001:db8::/64".parse().unwrap();
    for number in 1..=160 {
        fib.insert(prefix, hop(number)).unwrap();
    }
    // Each change needs a line, as it is made in a block of its own, and there are sixteen of them.
    let count = periods.load(Ordering::Relaxed);
    assert!((9..=11).contains(&count), "{count}");
}

/// Content by name.
struct SavedContents(HashMap<&'static str, Vec<u8>>);

impl SavedContents {
    fn new(contents: &[Content<'_>]) -> Self {
        let bytes = |content: &Content<'_>| {
            let mut bytes = Vec::new();
            content.write_to(&mut bytes).unwrap();
            assert_eq!(bytes.len(), content.bytes());
            (content.name, bytes)
        };
        Self(contents.iter().map(bytes).collect())
    }

    fn restore4(&self, rib: Rib<u32>, layout: Layout4) -> Result<Fib4, Error> {
        let capacity = Capacity4::new(1 << 12, 1 << 12);
        let contents = |name: &str| self.0.get(name).map(|bytes| &bytes[..]);
        Fib4::restore(rib, layout, &capacity, &mut Section::in_process, &contents)
    }

    fn restore6(&self, rib: Rib<u128>, layout: Layout6) -> Result<Fib6, Error> {
        let capacity = Capacity6::new(1 << 12, 1 << 16, 1 << 16, 1 << 16);
        let contents = |name: &str| self.0.get(name).map(|bytes| &bytes[..]);
        Fib6::restore(rib, layout, &capacity, &mut Section::in_process, &contents)
    }

    /// Changes a few bytes, mostly of what is not zero.
    fn spoil(&mut self, rng: &mut Rng) {
        let mut names: Vec<_> = self.0.keys().copied().collect();
        names.sort_unstable();
        for _ in 0..1 + rng.index(4) {
            let bytes = self.0.get_mut(names[rng.index(names.len())]).unwrap();
            if rng.index(10) == 0 {
                bytes.truncate(rng.index(bytes.len() + 1));
            }
            let from = rng.index(bytes.len() + 1);
            if let Some(at) = (from..bytes.len()).find(|&at| bytes[at] != 0) {
                let word = at / 4 * 4;
                let near = (word + rng.index(4)).min(bytes.len() - 1);
                bytes[near] = rng.next_u64() as u8;
            }
        }
    }
}

#[test]
fn ipv4_tables_are_restored_and_go_on() {
    use Layout4::{Bytes, Mixed, Words};
    for (from, to) in [
        (Bytes, Bytes),
        (Bytes, Mixed),
        (Bytes, Words),
        (Mixed, Mixed),
        (Mixed, Words),
        (Words, Mixed),
        (Words, Words),
    ] {
        let rib = rib4();
        let table = Fib4::build(rib.clone(), from).unwrap();
        let saved = SavedContents::new(&table.contents());
        let mut restored = saved.restore4(rib.clone(), to).unwrap();
        check(&rib, |key| restored.lookup(key).map_or(0, NextHop::get));
        for (prefix, _) in rib.iter().step_by(3) {
            restored.remove(prefix);
        }
        for (prefix, _) in rib.iter().step_by(2) {
            restored.insert(prefix, hop(77)).unwrap();
        }
        check(restored.rib(), |key| {
            let mut hops = [0];
            restored.lookup_batch(&[key], &mut hops);
            hops[0]
        });
        let lacking = saved.restore4(Rib::new(), to);
        assert!(matches!(
            lacking,
            Err(Error::Content {
                section: "groups",
                ..
            })
        ));
        if from != Bytes {
            let narrower = saved.restore4(rib, Bytes);
            assert!(matches!(
                narrower,
                Err(Error::Content {
                    section: "first",
                    ..
                })
            ));
        }
    }
}

#[test]
fn ipv6_tables_are_restored_and_go_on() {
    for from in [Layout6::Paged, Layout6::Flat] {
        for to in [Layout6::Paged, Layout6::Flat] {
            let rib = rib6();
            let table = Fib6::build(rib.clone(), from).unwrap();
            let mut restored = SavedContents::new(&table.contents())
                .restore6(rib.clone(), to)
                .unwrap();
            check(&rib, |key| restored.lookup(key).map_or(0, NextHop::get));
            for (prefix, _) in rib.iter().step_by(3) {
                restored.remove(prefix).unwrap();
            }
            for (prefix, _) in rib.iter().step_by(2) {
                restored.insert(prefix, hop(77)).unwrap();
            }
            check(restored.rib(), |key| {
                restored.lookup(key).map_or(0, NextHop::get)
            });
        }
    }
}

#[test]
fn damaged_ipv4_content_is_safe() {
    let rib = rib4();
    let table = Fib4::build(rib.clone(), Layout4::Words).unwrap();
    let contents = table.contents();
    let mut restored = 0;
    for seed in 0..8 {
        let mut saved = SavedContents::new(&contents);
        saved.spoil(&mut Rng::new(seed));
        let Ok(mut fib) = saved.restore4(rib.clone(), Layout4::Words) else {
            continue;
        };
        restored += 1;
        let keys = bounds(rib.iter().map(|(prefix, _)| prefix));
        let mut hops = vec![0; keys.len()];
        fib.lookup_batch(&keys, &mut hops);
        assert!(hops.iter().all(|&hop| hop <= NextHop::MAX));
        for (prefix, _) in &rib {
            fib.remove(prefix);
        }
    }
    assert!((1..8).contains(&restored), "{restored}");
}

#[test]
fn damaged_ipv6_content_is_safe() {
    let rib = rib6();
    let table = Fib6::build(rib.clone(), Layout6::Paged).unwrap();
    let contents = table.contents();
    let mut restored = 0;
    let rounds = u64::from(60 * sys::require::fuzz());
    for seed in 0..rounds {
        let mut saved = SavedContents::new(&contents);
        saved.spoil(&mut Rng::new(seed));
        let Ok(mut fib) = saved.restore6(rib.clone(), Layout6::Paged) else {
            continue;
        };
        restored += 1;
        let keys = bounds(rib.iter().map(|(prefix, _)| prefix));
        let keys: Vec<_> = keys.iter().map(|key| key.to_be_bytes()).collect();
        let mut hops = vec![0; keys.len()];
        fib.lookup_batch(&keys, &mut hops);
        assert!(hops.iter().all(|&hop| hop <= NextHop::MAX));
        for (prefix, _) in &rib {
            fib.remove(prefix).unwrap();
        }
        let refilled = rib
            .iter()
            .all(|(prefix, hop)| fib.insert(prefix, hop).is_ok());
        assert!(refilled);
    }
    assert!((1..rounds).contains(&restored), "{restored}");
}
