//! Trees of scikit-learn, XGBoost and LightGBM, which a manifest names.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use features::model::Model;
use libfuzzer_sys::fuzz_target;

const COLUMNS: &str = r#"
name = "fuzz"
schema = "flow.v1"
columns = [
    { id = "flow.v1/packets" },
    { id = "flow.v1/bytes" },
    { id = "flow.v1/iat_min_ns" },
    { id = "flow.v1/fwd_payload_mean" },
    { id = "flow.v1/midstream" },
    { id = "flow.v1/fwd_first_window" },
]
"#;

/// A folder with a manifest for two classes and one for three. libFuzzer ends without destructors, so the folder is
/// among what git ignores.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/target/trees"));
    std::fs::create_dir_all(folder).unwrap();
    for classes in 2..=3 {
        let names: String = (0..classes)
            .map(|class| format!("{{ name = \"{class}\" }}, "))
            .collect();
        for end in ["json", "txt"] {
            let manifest = format!("trees = \"trees.{end}\"\n{COLUMNS}classes = [{names}]\n");
            std::fs::write(folder.join(format!("{classes}-{end}.toml")), manifest).unwrap();
        }
    }
    folder.to_owned()
});

fuzz_target!(|trees: &[u8]| {
    for end in ["json", "txt"] {
        std::fs::write(FOLDER.join(format!("trees.{end}")), trees).unwrap();
        for classes in 2..=3 {
            let _ = Model::load(&FOLDER.join(format!("{classes}-{end}.toml")));
        }
    }
});
