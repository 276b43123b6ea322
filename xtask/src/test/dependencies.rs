//! Keeps what cargo compiled of other people's packages, for the next fresh checkout.
//!
//! `.ci/run` asks for it. Packages of this workspace are never kept: they are compiled from the checkout.
//! Cargo itself decides, as always, whether a restored file is what it would compile; the key only tells apart
//! what cannot serve each other.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::hash::{Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::metadata::text;
use crate::run;

/// The variable that is set if compiled dependencies are to be kept and restored.
const CACHE_VARIABLE: &str = "LOWROAD_CACHE_DEPENDENCIES";
/// Where cargo puts what the tests need.
const TARGET: &str = "target/debug";
/// The file in an entry of the cache.
const ARCHIVE: &str = "artifacts.tar";
const CHECKSUM: &str = "artifacts.sha256";
/// How many entries are kept, the latest used first.
const ENTRIES: usize = 3;
/// Variables that change what cargo compiles or where it looks for it.
const VARIABLES: &[&str] = &[
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_HOME",
    "CARGO_INCREMENTAL",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
];

/// The cache's entry for this checkout, where one was asked for.
pub(super) fn entry() -> Result<Option<Entry>> {
    if std::env::var_os(CACHE_VARIABLE).is_none() {
        return Ok(None);
    }
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    let caches = std::env::var_os("XDG_CACHE_HOME").filter(|folder| !folder.is_empty());
    let caches = caches.map_or_else(|| home().join(".cache"), PathBuf::from);
    let cache = caches.join("lowroad");
    Ok(Some(Entry {
        folder: cache.join(format!("deps-{:016x}", key()?)),
        cache,
    }))
}

/// A hash of everything that compiled dependencies depend on: their versions, the compiler, the profiles and flags.
fn key() -> Result<u64> {
    let manifest = fs::read_to_string("Cargo.toml").context("Cargo.toml")?;
    let manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
    let mut hasher = DefaultHasher::new();
    locked_packages()?.hash(&mut hasher);
    run::output("rustc", &["-vV"])?.hash(&mut hasher);
    manifest
        .get("profile")
        .map(ToString::to_string)
        .hash(&mut hasher);
    fs::read(".cargo/config.toml").ok().hash(&mut hasher);
    for variable in VARIABLES {
        std::env::var_os(variable).hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// The entries of Cargo.lock that come from elsewhere. Which of the workspace's crates uses which changes none of them.
fn locked_packages() -> Result<Vec<String>> {
    let lock = fs::read_to_string("Cargo.lock").context("Cargo.lock")?;
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let packages = packages.context("Cargo.lock lists no packages")?;
    let from_elsewhere = packages
        .iter()
        .filter(|package| package.get("source").is_some());
    Ok(from_elsewhere.map(ToString::to_string).collect())
}

#[derive(Debug)]
pub(super) struct Entry {
    cache: PathBuf,
    folder: PathBuf,
}

impl Entry {
    /// Puts the kept files where cargo looks for them. A damaged entry is removed and not used.
    pub(super) fn restore(&self) -> Result<()> {
        if !self.folder.is_dir() {
            println!("no compiled dependencies are kept for this Cargo.lock and compiler");
            return Ok(());
        }
        if !self.is_whole() {
            println!(
                "the kept dependencies are damaged: {}",
                self.folder.display()
            );
            return fs::remove_dir_all(&self.folder).context("the damaged entry");
        }
        // `latest` goes by it.
        File::open(self.folder.join(CHECKSUM))?.set_modified(SystemTime::now())?;
        fs::create_dir_all(TARGET).context(TARGET)?;
        let staging = Path::new(TARGET).join(format!(".restored-{}", std::process::id()));
        fs::create_dir_all(&staging)?;
        let archive = self.folder.join(ARCHIVE);
        let unpacked = Command::new("tar")
            .arg("-xf")
            .arg(&archive)
            .arg("-C")
            .arg(&staging)
            .status();
        let merged = match unpacked {
            Ok(status) if status.success() => merge(&staging, Path::new(TARGET)),
            _ => Err(anyhow::anyhow!("tar does not unpack {}", archive.display())),
        };
        fs::remove_dir_all(&staging)?;
        merged
    }

    fn is_whole(&self) -> bool {
        let checked = Command::new("sha256sum")
            .args(["--check", "--status", CHECKSUM])
            .current_dir(&self.folder)
            .stderr(Stdio::null())
            .status();
        checked.is_ok_and(|status| status.success())
    }

    /// Keeps what cargo's messages say of other people's packages, unless a whole entry is there already.
    pub(super) fn save(&self, built: &Artifacts) -> Result<()> {
        if self.is_whole() && built.compiled == 0 {
            return Ok(());
        }
        fs::create_dir_all(&self.cache)?;
        let part = self.cache.join(format!(".deps-{}", std::process::id()));
        fs::create_dir_all(&part)?;
        let saved = self.write(built, &part);
        if saved.is_err() {
            // The error to report is the first one.
            let _ = fs::remove_dir_all(&part);
        }
        saved?;
        self.prune()
    }

    fn write(&self, built: &Artifacts, part: &Path) -> Result<()> {
        let mut tar = Command::new("tar")
            .args([
                "--format=posix",
                "-C",
                TARGET,
                "--null",
                "--files-from=-",
                "-cf",
            ])
            .arg(fs::canonicalize(part)?.join(ARCHIVE))
            .stdin(Stdio::piped())
            .spawn()
            .context("tar does not start")?;
        let mut names = tar.stdin.take().context("tar's input")?;
        for path in built.paths(Path::new(TARGET))? {
            write!(names, "{path}\0")?;
        }
        drop(names);
        if !tar.wait()?.success() {
            bail!("tar does not pack the dependencies");
        }
        let sum = Command::new("sha256sum")
            .arg(ARCHIVE)
            .current_dir(part)
            .output()?;
        fs::write(part.join(CHECKSUM), sum.stdout)?;
        if self.folder.is_dir() {
            fs::remove_dir_all(&self.folder)?;
        }
        // Renamed last: an interrupted run leaves no entry.
        fs::rename(part, &self.folder).context("the cache's entry")
    }

    /// Removes the entries that were not used for the longest time.
    fn prune(&self) -> Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.cache)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("deps-") {
                let used = fs::metadata(path.join(CHECKSUM)).and_then(|sum| sum.modified());
                entries.push((used.unwrap_or(SystemTime::UNIX_EPOCH), path.clone()));
            }
        }
        entries.sort();
        let surplus = entries.len().saturating_sub(ENTRIES);
        for (_, path) in &entries[..surplus] {
            fs::remove_dir_all(path).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// Moves files where there are none. Those that are there, because building this program took them,
/// become as old as the kept ones: cargo compiles again what is older than what it depends on.
fn merge(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() && target.is_dir() {
            merge(&entry.path(), &target)?;
        } else if target.exists() {
            let kept = entry.metadata()?.modified()?;
            File::open(&target)?.set_modified(kept)?;
        } else {
            fs::rename(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Cargo's messages about packages from outside the workspace.
#[derive(Debug, Default)]
pub(super) struct Artifacts {
    /// Hashes that tell cargo's units apart: the ends of the names of their files.
    units: HashSet<String>,
    /// How many were compiled, and how many were there already.
    compiled: usize,
    fresh: usize,
    /// The same of this workspace's packages.
    own_compiled: usize,
    own_fresh: usize,
}

impl Artifacts {
    pub(super) fn of(messages: &[Value]) -> Self {
        let mut artifacts = Self::default();
        for message in messages {
            let foreign = text(message, "package_id").starts_with("registry+");
            let fresh = message["fresh"].as_bool();
            match (foreign, fresh) {
                (true, Some(true)) => artifacts.fresh += 1,
                (true, Some(false)) => artifacts.compiled += 1,
                (false, Some(true)) => artifacts.own_fresh += 1,
                (false, Some(false)) => artifacts.own_compiled += 1,
                (_, None) => {}
            }
            if !foreign {
                continue;
            }
            let files = message["filenames"].as_array().into_iter().flatten();
            let files = files.filter_map(Value::as_str);
            let out = message["out_dir"].as_str();
            artifacts.units.extend(files.chain(out).filter_map(unit));
        }
        artifacts
    }

    /// One line about what was compiled.
    pub(super) fn summary(&self) -> String {
        format!(
            "dependencies: {} compiled, {} kept; this workspace: {} compiled, {} kept",
            self.compiled, self.fresh, self.own_compiled, self.own_fresh
        )
    }

    /// The files and folders of the units below cargo's folder.
    fn paths(&self, target: &Path) -> Result<BTreeSet<String>> {
        let mut paths = BTreeSet::new();
        for folder in [".fingerprint", "build", "deps"] {
            for entry in fs::read_dir(target.join(folder)).with_context(|| folder.to_owned())? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if hash(&name).is_some_and(|hash| self.units.contains(hash)) {
                    paths.insert(format!("{folder}/{name}"));
                }
            }
        }
        Ok(paths)
    }
}

/// The hash in the name of a file or folder: `libserde-0123456789abcdef.rlib`.
fn hash(name: &str) -> Option<&str> {
    let (_, end) = name.rsplit_once('-')?;
    let hash = end.split('.').next()?;
    (hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(hash)
}

/// The hash of the unit that a file is of: a build script's is its folder's.
fn unit(file: &str) -> Option<String> {
    let mut parts = Path::new(file)
        .iter()
        .rev()
        .filter_map(|part| part.to_str());
    parts.find_map(hash).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_other_packages_are_told_by_their_hashes() {
        let message = |id: &str, file: &str, fresh: bool| serde_json::json!({"package_id": id, "filenames": [file], "fresh": fresh});
        let registry = "registry+https://example.org/index#serde@1.0.0";
        let script = serde_json::json!({
            "package_id": registry,
            "out_dir": "/x/target/debug/build/serde-00000000000000cc/out",
        });
        let artifacts = Artifacts::of(&[
            message(
                registry,
                "/x/target/debug/deps/libserde-00000000000000aa.rlib",
                true,
            ),
            message(
                "path+file:///x#sys@0.1.0",
                "/x/target/debug/deps/libsys-00000000000000bb.rlib",
                false,
            ),
            script,
        ]);
        assert_eq!((artifacts.fresh, artifacts.own_compiled), (1, 1));
        let folder = tempfile::tempdir().unwrap();
        for name in [
            ".fingerprint/serde-00000000000000aa",
            ".fingerprint/sys-00000000000000bb",
            "build/serde-00000000000000cc",
            "deps/libserde-00000000000000aa.rlib",
            "deps/libsys-00000000000000bb.rlib",
        ] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let expected = [
            ".fingerprint/serde-00000000000000aa",
            "build/serde-00000000000000cc",
            "deps/libserde-00000000000000aa.rlib",
        ];
        let paths = artifacts.paths(folder.path()).unwrap();
        assert_eq!(Vec::from_iter(paths), expected);
    }

    #[test]
    fn files_that_are_there_only_become_older() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("deps")).unwrap();
        fs::create_dir_all(to.join("deps")).unwrap();
        fs::write(from.join("deps/a"), "kept").unwrap();
        fs::write(from.join("deps/b"), "kept").unwrap();
        fs::write(to.join("deps/a"), "built").unwrap();
        let old = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        File::open(from.join("deps/a"))
            .unwrap()
            .set_modified(old)
            .unwrap();
        merge(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("deps/a")).unwrap(), "built");
        assert_eq!(fs::read_to_string(to.join("deps/b")).unwrap(), "kept");
        let modified = fs::metadata(to.join("deps/a")).unwrap().modified().unwrap();
        assert_eq!(modified, old);
    }

    #[test]
    fn damaged_entries_are_not_used() {
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join("deps-0");
        let entry = Entry {
            cache: cache.path().to_owned(),
            folder: folder.clone(),
        };
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(ARCHIVE), "no archive").unwrap();
        fs::write(
            folder.join(CHECKSUM),
            format!("{}  {ARCHIVE}\n", "0".repeat(64)),
        )
        .unwrap();
        assert!(!entry.is_whole());
        entry.restore().unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn unused_entries_are_removed() {
        let cache = tempfile::tempdir().unwrap();
        for number in 0..5_u64 {
            let folder = cache.path().join(format!("deps-{number}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(CHECKSUM), "").unwrap();
            let used = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000 + number);
            let sum = File::open(folder.join(CHECKSUM)).unwrap();
            sum.set_modified(used).unwrap();
        }
        fs::create_dir_all(cache.path().join("guest")).unwrap();
        let entry = Entry {
            cache: cache.path().to_owned(),
            folder: cache.path().join("deps-4"),
        };
        entry.prune().unwrap();
        let left = fs::read_dir(cache.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["deps-2", "deps-3", "deps-4", "guest"]);
    }
}
