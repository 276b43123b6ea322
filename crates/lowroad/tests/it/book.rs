//! The blocks of the book print what it shows, and its links and flags exist: docs/check.py checks both. The pages of
//! names are what docs/reference.py writes.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use sys::require::{self, Class};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn links_have_targets() {
    check(&mut python("python3"), &["links"]);
}

#[test]
fn flags_exist() {
    check(
        &mut python("python3"),
        &["flags", env!("CARGO_BIN_EXE_lowroad")],
    );
}

#[test]
fn reference_pages_are_current() {
    let mut command = Command::new("python3");
    command.arg(format!("{ROOT}/docs/reference.py"));
    check(&mut command, &["check", env!("CARGO_BIN_EXE_lowroad")]);
}

#[test]
fn start_prints_what_it_shows() {
    run_page("start.md");
}

#[test]
fn udpxy_page_prints_what_it_shows() {
    run_page("howto-udpxy.md");
}

#[test]
fn firewall_page_prints_what_it_shows() {
    run_page("howto-xdp-firewall.md");
}

#[test]
fn troubleshooting_prints_what_it_shows() {
    run_page("troubleshooting.md");
}

#[test]
#[ignore = "waits for the relay's looks at the kernel's rules"]
fn fast_path_page_prints_what_it_shows() {
    run_page("howto-fast-path.md");
}

#[test]
#[ignore = "captures and applies for some seconds"]
fn warm_copy_page_prints_what_it_shows() {
    run_page("howto-warm-copy.md");
}

#[test]
#[ignore = "measures for 20 s"]
fn cloud_network_page_prints_what_it_shows() {
    run_page("howto-cloud-network.md");
}

#[test]
fn scan_page_prints_what_it_shows() {
    if !require::requested("trains a model with scikit-learn") || !require::root() {
        return;
    }
    let needs = ["scikit-learn==1.9.1", "pyarrow==26.0.1"];
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let Some(interpreter) = require::python(Class::OptIn, home, &needs) else {
        return;
    };
    let mut path = OsString::from(interpreter.parent().unwrap());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = python(&interpreter);
    command
        .env("PATH", path)
        .env("PYTHONPATH", format!("{ROOT}/python/lowroad"));
    check(&mut command, &run_arguments("howto-scan.md"));
}

fn run_page(page: &str) {
    if require::root() {
        check(&mut python("python3"), &run_arguments(page));
    }
}

fn run_arguments(page: &str) -> [String; 3] {
    let page = format!("{ROOT}/docs/src/{page}");
    let program = env!("CARGO_BIN_EXE_lowroad");
    ["run".to_owned(), page, program.to_owned()]
}

fn python(interpreter: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(format!("{ROOT}/docs/check.py"));
    command
}

fn check(python: &mut Command, arguments: &[impl AsRef<OsStr>]) {
    let Ok(output) = python.args(arguments).output() else {
        return require::skip(Class::Core, "no python3: apt install python3");
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{printed}{errors}");
}
