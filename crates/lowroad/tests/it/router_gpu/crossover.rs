//! From which batches and how many rules on a device is faster.

use super::{device, files, json, router};

#[test]
fn a_crossover_names_the_batch_or_says_that_there_is_none() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [routes, rules, _] = files(folder.path());
    let given = [
        "crossover",
        "--rib",
        &routes,
        "--rules",
        &rules,
        "--simd",
        "portable",
    ];
    let more = ["--device", &device, "--rounds", "6", "--ipv6", "30"];
    // Enough for the largest batch, and for one of the smaller ones.
    let with = |packets| [&given[..], &more, &["--packets", packets]].concat();
    let arguments = with("4000");
    let told = json(
        &router(&[&with("70000")[..], &["--json"]].concat())
            .output()
            .unwrap(),
    );
    assert_eq!(told["device"]["kind"], "CPU");
    assert!(told["faster_from_batch"].is_null() || told["faster_from_batch"].is_u64());
    let decisions = &told["decisions"];
    assert_eq!(decisions["checked"], 70_000);
    for arm in decisions["arms"].as_array().unwrap() {
        assert_eq!(arm["wrong"], 0);
        let times = arm["ns_per_lookup"].as_object().unwrap();
        assert_eq!(times.len(), 7);
        assert!(
            times
                .values()
                .all(|time| time["n"] == 6 && time["median"].is_f64())
        );
    }
    let said = router(&arguments).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains(&format!(
            "{device} is a CPU: nothing here is a GPU's figure"
        )),
        "{said}"
    );
    let unnamed = router(&given).output().unwrap();
    assert_eq!(unnamed.status.code(), Some(2), "no device chooses itself");
    let few = ["--first-rules", "2,1,50", "--json"];
    let told = json(&router(&[&arguments[..], &few].concat()).output().unwrap());
    let by_rules = told["by_rules"].as_array().unwrap();
    let counts = by_rules.iter().map(|one| one["rules"]["v4"].as_u64());
    let most = told["rules"]["v4"].as_u64();
    assert_eq!(counts.collect::<Vec<_>>(), [Some(1), Some(2), most]);
    let least = &told["faster_from_rules"];
    assert!(least.is_null() || least.is_u64(), "{least}");
    for one in by_rules {
        let arms = one["decisions"]["arms"].as_array().unwrap();
        assert!(arms.iter().all(|arm| arm["wrong"] == 0), "{one}");
    }
    let none = [&arguments[..], &["--function", "lpm", "--first-rules", "1"]].concat();
    let refused = router(&none).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "routes are no rules");
}
