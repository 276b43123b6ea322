//! The needs of a test: without them it is skipped by class, and a core skip is a failure under
//! `LOWROAD_REQUIRE=core`, which demands that everything runs.

mod python;

use std::env;
use std::fmt;

pub use python::python;

/// Why a test may be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Part of every complete run: a skip fails under `LOWROAD_REQUIRE=core`.
    Core,
    /// Needs a device.
    Hardware,
    /// Needs outside data, in the folder that `LOWROAD_CORPUS` names.
    Corpus,
    /// Runs on request.
    OptIn,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core => "core",
            Self::Hardware => "hardware",
            Self::Corpus => "corpus",
            Self::OptIn => "opt-in",
        })
    }
}

/// Reports a skip: `if !present { return skip(..) }`.
///
/// # Panics
/// When the class is core and `LOWROAD_REQUIRE=core`.
#[expect(
    clippy::print_stderr,
    reason = "the test runner shows skips from standard error"
)]
pub fn skip(class: Class, reason: &str) {
    assert!(
        class != Class::Core || env::var("LOWROAD_REQUIRE").as_deref() != Ok("core"),
        "required here, and cannot run: {reason}"
    );
    eprintln!("SKIP {class}: {reason}");
}

/// Whether the test may create namespaces and load programs; reports the skip when not.
pub fn root() -> bool {
    let present = nix::unistd::geteuid().is_root();
    if !present {
        skip(Class::Core, "needs root");
    }
    present
}

/// Whether what runs on request was requested; reports the skip when not, saying what is left out.
pub fn requested(what: &str) -> bool {
    let requested = env::var_os("LOWROAD_OPT_IN").is_some();
    if !requested {
        skip(Class::OptIn, &format!("LOWROAD_OPT_IN=1 {what}"));
    }
    requested
}

/// How many times its usual cases a test on random input runs: `LOWROAD_FUZZ`, else once.
pub fn fuzz() -> u32 {
    let asked = env::var("LOWROAD_FUZZ").ok();
    asked.and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// The folder of outside data; reports the skip when there is none.
pub fn corpus() -> Option<std::path::PathBuf> {
    let folder = env::var_os("LOWROAD_CORPUS").map(std::path::PathBuf::from);
    if folder.is_none() {
        skip(Class::Corpus, "LOWROAD_CORPUS names no folder");
    }
    folder
}
