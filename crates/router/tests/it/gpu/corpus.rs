//! The full tables and the long lists.

use acl::generate::Kind;
use lpm::{Layout4, Rib};
use router::engine::Contents;
use router::gpu::Options;
use router::rules::RuleSet;

use super::data::{list, real, rules, unpacked};
use super::{agree, device, frames};

#[test]
fn full_tables_and_long_lists_are_decided_as_on_cpus() {
    let (Some(device), Some(corpus)) = (device(), sys::require::corpus()) else {
        return;
    };
    let folder = unpacked(&corpus);
    let few: (Rib<u32>, Rib<u128>) = (real(&corpus, 199), real(&corpus, 199));
    let many: (Rib<u32>, Rib<u128>) = (real(&corpus, 5003), real(&corpus, 5003));
    assert!(few.0.len() > 900_000 && few.1.len() > 160_000);
    for (size, layout4, (v4, v6)) in [
        ("1k", Layout4::Bytes, &few),
        ("10k", Layout4::Mixed, &many),
        ("100k", Layout4::Words, &many),
    ] {
        for kind in ["acl1", "fw1", "ipc1"] {
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
