//! Real lists with their traces: every answer against the linear search, memory and build bounded.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

use acl::{Classifier, Key4, NONE, Options, Rule4, Simd, classbench, generate, linear};

/// Unpacks the lists; `None`, with the skip reported, where there is no outside data.
fn unpacked() -> Option<tempfile::TempDir> {
    let archive = sys::require::corpus()?.join("rules/classbench.tar.xz");
    let folder = tempfile::tempdir().unwrap();
    let tar = Command::new("tar")
        .arg("xf")
        .arg(archive)
        .current_dir(&folder)
        .status();
    assert!(tar.unwrap().success(), "tar and xz unpack the lists");
    Some(folder)
}

fn read(folder: &Path, name: &str) -> (Vec<Rule4>, Vec<Key4>) {
    let open = |name: &str| BufReader::new(File::open(folder.join(name)).unwrap());
    let rules = classbench::rules(open(name)).unwrap();
    let keys = classbench::trace(open(&format!("{name}_trace"))).unwrap();
    (rules, keys)
}

/// Checks at most `linear_keys` keys of the trace, and as many from anywhere, by the linear search;
/// the whole trace by agreement of all instruction sets.
fn check(name: &str, rules: &[Rule4], trace: &[Key4], linear_keys: usize) {
    let mut classifier = Classifier::build(rules, Options::default()).unwrap();
    let report = classifier.report().clone();
    assert!(report.warnings.is_empty(), "{name}: {:?}", report.warnings);
    assert!(
        report.bytes < 1024 * rules.len(),
        "{name}: {} bytes",
        report.bytes
    );
    let step = (trace.len() / linear_keys).max(1);
    let mut keys: Vec<Key4> = trace.iter().step_by(step).copied().collect();
    keys.extend(generate::keys_anywhere::<u32>(linear_keys, 1));
    let wanted: Vec<u32> = keys
        .iter()
        .map(|key| linear(rules, key).map_or(NONE, |at| u32::try_from(at).unwrap()))
        .collect();
    let mut agreed: Option<Vec<u32>> = None;
    for simd in Simd::available() {
        classifier = classifier.with_simd(simd);
        let mut found = vec![0; keys.len()];
        classifier.classify(&keys, &mut found);
        assert!(found == wanted, "{name}: {simd:?}");
        let mut all = vec![0; trace.len()];
        classifier.classify(trace, &mut all);
        assert!(
            agreed.get_or_insert_with(|| all.clone()) == &all,
            "{name}: {simd:?}"
        );
    }
}

#[test]
fn lists_of_all_sizes_are_exact() {
    let Some(folder) = unpacked() else { return };
    for (size, keys) in [("1k", 10_000), ("10k", 4_000), ("100k", 400)] {
        for kind in ["acl1", "fw1", "ipc1"] {
            let name = format!("{kind}_{size}");
            let (rules, trace) = read(folder.path(), &name);
            assert!(rules.len() > 800 && trace.len() > 8_000);
            check(&name, &rules, &trace, keys);
        }
    }
}
