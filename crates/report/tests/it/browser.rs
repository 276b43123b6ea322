//! The report in a real browser. Opt-in: `LOWROAD_OPT_IN=1`, with Chromium and npm installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use report::{Analysis, page};
use sys::require::{self, Class};

use crate::common;

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

#[test]
fn report_renders_in_chromium() {
    if !require::requested("opens the report in Chromium") {
        return;
    }
    let Some(browser) = BROWSERS.iter().find_map(|name| on_path(name)) else {
        return require::skip(Class::OptIn, "no Chromium: apt-get install chromium");
    };
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let folder = tempfile::tempdir().unwrap();
    for name in ["package.json", "check.mjs"] {
        std::fs::copy(scripts.join(name), folder.path().join(name)).unwrap();
    }
    let record = common::record(20, 2);
    let report = folder.path().join("report.html");
    std::fs::write(&report, page(&Analysis::new(&record))).unwrap();

    let install = ["install", "--no-audit", "--no-fund", "--silent"];
    run(Command::new("npm").args(install).current_dir(&folder));
    run(Command::new("node")
        .arg("check.mjs")
        .args([report.as_path(), &browser, folder.path()])
        .current_dir(&folder));
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn run(command: &mut Command) {
    let output = command.output().expect("npm and node are installed");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}");
}
