//! The Python package: its tests under pytest, over the library of this build and, on request, over a
//! wheel that pip has built and installed.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sys::require::{self, Class};

/// The Python project.
const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python");
/// The program that evaluates ONNX models, which a wheel has beside the library.
const EVALUATOR: &str = "lowroad-onnx";

#[test]
fn the_package_passes_its_tests() {
    let Some(python) = environment() else {
        return;
    };
    let package = tempfile::tempdir().unwrap();
    assemble(&package.path().join("lowroad"));
    pytest(&python, package.path());
}

#[test]
fn a_wheel_that_pip_builds_passes_them_too() {
    if !require::requested("builds the wheel") {
        return;
    }
    let Some(python) = environment() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let [wheels, package] = ["wheels", "package"].map(|name| folder.path().join(name));
    // As a user builds it, but as and where cargo has built before: all of it optimised takes a quarter of an hour.
    let target = profile().parent().unwrap().to_owned();
    let mut build = pip(&python, "wheel");
    build
        .env("CARGO_TARGET_DIR", target)
        .env("MATURIN_PEP517_ARGS", "--profile=dev");
    let alone = library();
    run(build.arg("--wheel-dir").arg(&wheels).arg(PROJECT)).unwrap();
    drop(alone);
    let wheel = fs::read_dir(&wheels).unwrap().next().unwrap().unwrap();
    check_contents(&python, &wheel.path());
    let mut install = pip(&python, "install");
    install.arg("--target").arg(&package).arg(wheel.path());
    run(&mut install).unwrap();
    pytest(&python, &package);
}

fn pip(python: &Path, verb: &str) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", verb, "--quiet", "--no-deps"]);
    pip.arg("--disable-pip-version-check");
    pip
}

/// Everything that the package needs, and nothing of the test bed.
fn check_contents(python: &Path, wheel: &Path) {
    let script = "import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep='\\n')";
    let output = Command::new(python)
        .args(["-c", script])
        .arg(wheel)
        .output();
    let names = String::from_utf8(output.unwrap().stdout).unwrap();
    let has = |ending: &str| names.lines().any(|name| name.ends_with(ending));
    for wanted in [
        "lowroad/__init__.py",
        "lowroad/_native.abi3.so",
        "lowroad/_native.pyi",
        "lowroad/lowroad-onnx",
        "lowroad/py.typed",
        "licenses/LICENSE-MIT",
        "licenses/LICENSE-APACHE",
    ] {
        assert!(has(wanted), "{wanted} is missing:\n{names}");
    }
    let outside = |name: &&str| !name.starts_with("lowroad/") && !name.contains(".dist-info/");
    let found: Vec<&str> = names.lines().filter(outside).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// The package as a wheel would hold it, with the library of this build.
fn assemble(package: &Path) {
    fs::create_dir(package).unwrap();
    for entry in fs::read_dir(Path::new(PROJECT).join("lowroad")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            symlink(entry.path(), package.join(entry.file_name())).unwrap();
        }
    }
    let _alone = library();
    let built = profile().join("deps/liblowroad_python.so");
    assert!(built.is_file(), "{} is missing", built.display());
    fs::copy(built, package.join("_native.abi3.so")).unwrap();
    let evaluator = package.join(EVALUATOR);
    if !evaluator.exists() {
        symlink(profile().join(EVALUATOR), evaluator).unwrap();
    }
}

/// Until it is dropped nobody else builds the library or copies it: a build takes it away for a while.
fn library() -> File {
    let lock = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-library.lock");
    let lock = File::create(lock).unwrap();
    lock.lock().unwrap();
    lock
}

/// Runs the tests over the package in this folder.
fn pytest(python: &Path, package: &Path) {
    let command = profile().join("lowroad");
    for program in [&command, &profile().join(EVALUATOR)] {
        if !program.is_file() {
            let what = format!("{} is missing: cargo build", program.display());
            return require::skip(Class::Core, &what);
        }
    }
    let mut pytest = Command::new(python);
    pytest
        .args(["-B", "-m", "pytest", "-p", "no:cacheprovider"])
        // Not where the package is: what was assembled is meant, which has a library.
        .current_dir(Path::new(PROJECT).join("tests"))
        .env("PYTHONPATH", package)
        .env("LOWROAD", command)
        .env("MPLBACKEND", "agg");
    if let Err(why) = run(&mut pytest) {
        panic!("{why}");
    }
}

/// A virtual environment with what the tests need, made once; reports the skip where that cannot be.
fn environment() -> Option<PathBuf> {
    let requirements = Path::new(PROJECT).join("tests/requirements.txt");
    let requirements = fs::read_to_string(requirements).unwrap();
    let lines = requirements.lines();
    let packages: Vec<&str> = lines.filter(|line| line.contains("==")).collect();
    require::python(
        Class::Core,
        Path::new(env!("CARGO_TARGET_TMPDIR")),
        &packages,
    )
}

/// Where this build's programs are.
fn profile() -> PathBuf {
    let here = env::current_exe().unwrap();
    here.parent().and_then(Path::parent).unwrap().to_owned()
}

/// Runs a command; what it said, where it fails.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    let [out, err] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    Err(format!("{out}{err}"))
}
