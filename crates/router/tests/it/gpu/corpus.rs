//! The full tables and the long lists.

use acl::generate::Kind;
use lpm::{Layout4, Rib};
use router::engine::Contents;
use router::gpu::Options;
use router::rules::RuleSet;

use super::data::{list, real, rules, unpacked};
use super::{agree, device, frames};

/// Each size with one kind of list.
const EACH_SIZE: [(&str, &[&str]); 3] = [("1k", &["ipc1"]), ("10k", &["fw1"]), ("100k", &["acl1"])];
const KINDS: &[&str] = &["acl1", "fw1", "ipc1"];
const ALL: [(&str, &[&str]); 3] = [("1k", KINDS), ("10k", KINDS), ("100k", KINDS)];

#[test]
fn full_tables_and_a_list_of_each_size_are_decided_as_on_cpus() {
    are_decided_as_on_cpus(EACH_SIZE);
}

#[test]
#[ignore = "every kind of list in every size"]
fn full_tables_and_long_lists_are_decided_as_on_cpus() {
    are_decided_as_on_cpus(ALL);
}

fn are_decided_as_on_cpus(lists: [(&str, &[&str]); 3]) {
    let (Some(device), Some(corpus)) = (device(), sys::require::corpus()) else {
        return;
    };
    let folder = unpacked(&corpus);
    let few: (Rib<u32>, Rib<u128>) = (real(&corpus, 199), real(&corpus, 199));
    let many: (Rib<u32>, Rib<u128>) = (real(&corpus, 5003), real(&corpus, 5003));
    assert!(few.0.len() > 900_000 && few.1.len() > 160_000);
    let tables = [
        (Layout4::Bytes, &few),
        (Layout4::Mixed, &many),
        (Layout4::Words, &many),
    ];
    for ((size, kinds), (layout4, (v4, v6))) in lists.into_iter().zip(tables) {
        for kind in kinds {
            let of4 = list(&folder, &format!("{kind}_{size}"));
            let contents = Contents {
                v4: v4.clone(),
                v6: v6.clone(),
                rules: RuleSet {
                    v6: rules(Kind::Firewall, of4.len()),
                    v4: of4,
                    ..RuleSet::default()
                },
            };
            let options = Options {
                layout4,
                ..Options::of(device.clone())
            };
            agree(&contents, &frames(&contents, 60_000), &options, &[8192]);
        }
    }
}
