//! Experiments of netbench report what they lack before anything runs.

use crate::common::{lowroad, stdout, succeeded};

mod exclusive;

#[test]
fn missing_environment_is_skipped_with_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let arms = "native/direct,oci/direct,docker/direct,vm/direct";
    let words = ["compare", "netbench-matrix", "--quick", "--arms", arms];
    let output = lowroad(&words)
        .arg("--dry-run")
        // Where nothing is installed.
        .env("PATH", folder.path())
        .output()
        .unwrap();
    succeeded(&output);
    let said = stdout(&output);
    assert!(said.contains("arms      native/direct\n"), "{said}");
    for (arm, what, remedy) in [
        (
            "oci/direct",
            "runc is not installed",
            "apt-get install runc",
        ),
        (
            "docker/direct",
            "docker is not installed",
            "apt-get install docker.io && systemctl start docker",
        ),
        (
            "vm/direct",
            "need qemu-system-x86_64",
            "apt-get install qemu-system-x86",
        ),
    ] {
        let mut lines = said.lines();
        let line = lines.find(|line| line.starts_with(&format!("skipped {arm}: ")));
        let line = line.unwrap_or_else(|| panic!("{arm}: {said}"));
        assert!(line.contains(what), "{line}");
        assert!(line.ends_with(&format!("   {remedy}")), "{line}");
    }
}
