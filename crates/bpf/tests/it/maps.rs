//! Typed maps, sums over CPUs, and runs of a program.

use std::collections::BTreeMap;

use bpf::{Batch, Counters, Cursor, Map, PerCpu, Run};
use libbpf_rs::libbpf_sys::{BPF_F_NO_PREALLOC, bpf_map_create_opts};
use libbpf_rs::{MapCore as _, MapMut, MapType, Object};

use crate::common;

/// `struct counters` of maps.bpf.c.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
struct Sums([u64; 2]);

// SAFETY: an array of integers.
unsafe impl bpf::Plain for Sums {}
impl Counters for Sums {}

fn map<'o>(object: &'o mut Object, name: &str) -> MapMut<'o> {
    object.maps_mut().find(|map| map.name() == name).unwrap()
}

#[test]
fn entries_are_written_read_and_removed() {
    if !sys::require::root() {
        return;
    }
    let mut object = common::load("maps");
    let table = Map::<u64, u32>::new(&map(&mut object, "table")).unwrap();
    assert_eq!(table.get(&7).unwrap(), None);
    table.set(&7, &70).unwrap();
    assert_eq!(table.try_clone().unwrap().get(&7).unwrap(), Some(70));
    assert_eq!(table.keys().collect::<Vec<_>>(), [7]);
    table.remove(&7).unwrap();
    let error = table.remove(&7).unwrap_err().to_string();
    assert!(error.starts_with("erasing from map table: "), "{error}");
    for key in 0..4 {
        table.set(&key, &0).unwrap();
    }
    let error = table.set(&4, &0).unwrap_err().to_string();
    assert!(error.starts_with("writing map table: "), "{error}");
}

#[test]
fn entries_of_a_hash_table_are_written_read_and_taken_in_batches() {
    if !sys::require::root() {
        return;
    }
    let options = bpf_map_create_opts::default();
    let table = Map::<u64, u32>::create(MapType::Hash, "table", 1000, &options).unwrap();
    table.set_batch(&[], &[]).unwrap();
    assert!(table.set_batch(&[1, 2], &[3]).is_err());
    let entries: BTreeMap<u64, u32> = (0..1000).map(|key| (key.into(), key * 3)).collect();
    let (keys, values): (Vec<_>, Vec<_>) = entries.clone().into_iter().unzip();
    table.set_batch(&keys, &values).unwrap();
    // One entry at a time, there is a bucket with more.
    for room in [1, 100, 1000] {
        let (mut cursor, mut batch) = (Cursor::default(), Batch::new(room));
        let mut read = BTreeMap::new();
        loop {
            let more = table.read_batch(&mut cursor, &mut batch).unwrap();
            assert!(batch.keys().len() <= batch.room());
            assert_eq!(batch.keys().len(), batch.values().len());
            read.extend(batch.entries().map(|(key, value)| (*key, *value)));
            if !more {
                break;
            }
        }
        assert_eq!(read, entries);
        assert_eq!(cursor, Cursor::default(), "begins again");
    }
    let (mut cursor, mut batch) = (Cursor::default(), Batch::new(300));
    let mut taken = 0;
    while table.take_batch(&mut cursor, &mut batch).unwrap() {
        taken += batch.keys().len();
    }
    assert_eq!(taken + batch.keys().len(), 1000);
    assert_eq!(table.keys().next(), None);
}

#[test]
fn other_maps_are_not_read_in_batches() {
    if !sys::require::root() {
        return;
    }
    let options = bpf_map_create_opts {
        map_flags: BPF_F_NO_PREALLOC,
        ..Default::default()
    };
    let trie = Map::<[u32; 4], u32>::create(MapType::LpmTrie, "trie", 4, &options).unwrap();
    trie.set(&[32, 1, 0, 0], &1).unwrap();
    let (mut cursor, mut batch) = (Cursor::default(), Batch::new(4));
    let error = trie.read_batch(&mut cursor, &mut batch).unwrap_err();
    assert!(error.to_string().starts_with("reading map trie: "));
}

#[test]
fn a_range_of_an_array_is_written_at_once() {
    if !sys::require::root() {
        return;
    }
    let mut object = common::load("maps");
    let array = Map::<u32, [u16; 2]>::new(&map(&mut object, "array")).unwrap();
    assert_eq!(array.max_entries(), 4);
    array.set_range(1, &[]).unwrap();
    array.set_range(1, &[[1, 2], [3, 4]]).unwrap();
    let entries: Vec<_> = (0..5).map(|key| array.get(&key).unwrap()).collect();
    assert_eq!(
        entries,
        [Some([0, 0]), Some([1, 2]), Some([3, 4]), Some([0, 0]), None]
    );
    assert!(array.set_range(3, &[[5, 6], [7, 8]]).is_err());
}

#[test]
fn maps_of_another_size_are_refused() {
    if !sys::require::root() {
        return;
    }
    let mut object = common::load("maps");
    let table = map(&mut object, "table");
    let keys = Map::<u32, u32>::new(&table).unwrap_err().to_string();
    assert!(keys.contains("table has keys of another size"), "{keys}");
    let values = Map::<u64, u64>::new(&table).unwrap_err().to_string();
    assert!(
        values.contains("table has values of another size"),
        "{values}"
    );
    assert!(PerCpu::<u64>::new(&map(&mut object, "counts")).is_err());
}

#[test]
fn runs_on_any_cpu_are_in_the_sum() {
    if !sys::require::root() {
        return;
    }
    let mut object = common::load("maps");
    let counts = PerCpu::<Sums>::new(&map(&mut object, "counts")).unwrap();
    let program = object.progs_mut().next().unwrap();
    let program = bpf::program(&program).unwrap();
    let cpus = sys::sched::allowed_cpus().unwrap();
    let run = Run {
        frame: &[0; 64],
        repeat: 3,
        ..Default::default()
    };
    for cpu in &cpus {
        let done = sys::sched::on_cpu(*cpu, || bpf::run(&program, &run));
        done.unwrap().unwrap();
    }
    let runs = 3 * cpus.len() as u64;
    assert_eq!(counts.sum(1).unwrap(), Sums([runs, 64 * runs]));
    assert_eq!(counts.sum(0).unwrap(), Sums([0, 0]));
    counts.zero(1).unwrap();
    assert_eq!(counts.sum(1).unwrap(), Sums([0, 0]));
    let short = Run {
        frame: &[0; 4],
        ..Default::default()
    };
    assert!(bpf::run(&program, &short).is_err());
}
