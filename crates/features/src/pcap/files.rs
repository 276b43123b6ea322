//! Expands a list of names to files: names of files and directories, and patterns.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// The most files of a run.
const MAX_FILES: usize = 100_000;

/// Suffixes of captures, in front of those in [`COMPRESSION_SUFFIXES`].
const ENDINGS: [&str; 3] = [".pcap", ".pcapng", ".cap"];
const COMPRESSION_SUFFIXES: [&str; 4] = [".gz", ".zst", ".xz", ".lz4"];

/// The reason that names could not be expanded to files.
#[derive(Debug, thiserror::Error)]
pub enum NoFiles {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error(
        "{}: the directory has no captures: files whose names end in .pcap, .pcapng or .cap, with digits or \
         .gz, .zst, .xz or .lz4 behind", .0.display()
    )]
    EmptyDirectory(PathBuf),
    #[error("{}: no file matches", .0.display())]
    NoMatch(PathBuf),
    #[error("{}: {why}", path.display())]
    Pattern { path: PathBuf, why: String },
    #[error("more than {MAX_FILES} captures: use several runs")]
    TooMany,
}

/// The files that these names stand for, each once, in the order of the names.
///
/// A directory stands for the captures in it, without those in its directories. A name with `*`, `?`, `[` or `{`
/// that no file has is a pattern and stands for the files that match. Both are in the order of their names, in
/// which numbers are ordered by their value. `-` is standard input.
///
/// # Errors
/// A name stands for no file, a directory cannot be read, or there are more than 100 000 files.
pub fn captures(names: &[PathBuf]) -> Result<Vec<PathBuf>, NoFiles> {
    let (mut files, mut known) = (Vec::new(), HashSet::new());
    for name in names {
        for file in expand(name)? {
            let canonical = file.canonicalize().unwrap_or_else(|_| file.clone());
            if known.insert(canonical) {
                files.push(file);
            }
            if files.len() > MAX_FILES {
                return Err(NoFiles::TooMany);
            }
        }
    }
    Ok(files)
}

fn expand(name: &Path) -> Result<Vec<PathBuf>, NoFiles> {
    if name == Path::new("-") {
        return Ok(vec![name.to_owned()]);
    }
    match fs::metadata(name) {
        Ok(found) if found.is_dir() => in_directory(name),
        Ok(_) => Ok(vec![name.to_owned()]),
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_pattern(name.as_os_str()) => {
            expand_pattern(name)
        }
        Err(error) => Err(failed(name, error)),
    }
}

/// The names of captures in a directory, in order.
pub(super) fn capture_names(directory: &Path) -> Result<Vec<OsString>, NoFiles> {
    let mut names = names_in(directory)?;
    names.retain(|name| is_capture(name));
    Ok(names)
}

/// The captures in a directory, in the order of their names.
fn in_directory(directory: &Path) -> Result<Vec<PathBuf>, NoFiles> {
    let names = capture_names(directory)?.into_iter();
    let paths = names.map(|name| directory.join(name));
    let files: Vec<PathBuf> = paths.filter(|path| !path.is_dir()).collect();
    if files.is_empty() {
        return Err(NoFiles::EmptyDirectory(directory.to_owned()));
    }
    Ok(files)
}

/// The names in a directory, in order.
fn names_in(directory: &Path) -> Result<Vec<OsString>, NoFiles> {
    let mut names = Vec::new();
    let entries = fs::read_dir(directory).map_err(|error| failed(directory, error))?;
    for entry in entries {
        names.push(entry.map_err(|error| failed(directory, error))?.file_name());
        if names.len() > MAX_FILES {
            return Err(NoFiles::TooMany);
        }
    }
    names.sort_by(|one, other| by_name(one, other));
    Ok(names)
}

/// Whether a file in a directory has the name of a capture.
fn is_capture(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    if name.starts_with('.') {
        return false;
    }
    let plain = COMPRESSION_SUFFIXES
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .unwrap_or(&name);
    // tcpdump -C and -W append numbers to the name.
    let plain = plain.trim_end_matches(|digit: char| digit.is_ascii_digit());
    ENDINGS.iter().any(|ending| plain.ends_with(ending))
}

/// A name without the suffix of a compressed file.
pub(super) fn uncompressed(name: &OsStr) -> &OsStr {
    let bytes = name.as_bytes();
    let plain = COMPRESSION_SUFFIXES.iter().find_map(|ending| {
        let (plain, end) = bytes.split_at_checked(bytes.len().checked_sub(ending.len())?)?;
        end.eq_ignore_ascii_case(ending.as_bytes()).then_some(plain)
    });
    plain.map_or(name, OsStr::from_bytes)
}

/// Compares names. Numbers in them are compared by value, so that 10 follows 9.
pub(super) fn by_name(one: &OsStr, other: &OsStr) -> Ordering {
    let (mut a, mut b) = (one.as_bytes(), other.as_bytes());
    while let (Some(first), Some(second)) = (a.first(), b.first()) {
        let order = if first.is_ascii_digit() && second.is_ascii_digit() {
            let ((one, rest), (other, others)) = (number(a), number(b));
            (a, b) = (rest, others);
            one.len().cmp(&other.len()).then_with(|| one.cmp(other))
        } else {
            let order = first.cmp(second);
            (a, b) = (&a[1..], &b[1..]);
            order
        };
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len()).then_with(|| one.cmp(other))
}

/// The digits of the number at the start, without leading zeros, and the remaining bytes.
fn number(bytes: &[u8]) -> (&[u8], &[u8]) {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit());
    let (digits, rest) = bytes.split_at(digits.count());
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    (&digits[zeros..], rest)
}

fn is_pattern(name: &OsStr) -> bool {
    name.as_bytes()
        .iter()
        .any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'{'))
}

/// The files that match a pattern, which is matched component by component.
fn expand_pattern(pattern: &Path) -> Result<Vec<PathBuf>, NoFiles> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let name = component.as_os_str();
        if !matches!(component, Component::Normal(_)) || !is_pattern(name) {
            found = found.into_iter().map(|path| path.join(name)).collect();
            continue;
        }
        let matcher = matcher(pattern, name)?;
        let mut next = Vec::new();
        for directory in found {
            next.extend(matches_in(&directory, &matcher, name)?);
            if next.len() > MAX_FILES {
                return Err(NoFiles::TooMany);
            }
        }
        found = next;
    }
    found.retain(|path| path.exists() && !path.is_dir());
    if found.is_empty() {
        return Err(NoFiles::NoMatch(pattern.to_owned()));
    }
    Ok(found)
}

fn matcher(pattern: &Path, component: &OsStr) -> Result<GlobMatcher, NoFiles> {
    let wrong = |why: String| NoFiles::Pattern {
        path: pattern.to_owned(),
        why,
    };
    let text = component
        .to_str()
        .ok_or_else(|| wrong("a pattern has to be UTF-8".to_owned()))?;
    if text.contains("**") {
        return Err(wrong(
            "** is not supported: write a * for each level of directories".to_owned(),
        ));
    }
    let glob = GlobBuilder::new(text).literal_separator(true).build();
    let glob = glob.map_err(|error| wrong(error.kind().to_string()))?;
    Ok(glob.compile_matcher())
}

/// The matches in a directory. As in a shell, a name that starts with a dot requires a pattern that does.
fn matches_in(
    directory: &Path,
    matcher: &GlobMatcher,
    pattern: &OsStr,
) -> Result<Vec<PathBuf>, NoFiles> {
    let listed = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    if !listed.is_dir() {
        return Ok(Vec::new());
    }
    let is_hidden = |name: &OsStr| name.as_bytes().starts_with(b".");
    let names = names_in(listed)?.into_iter();
    let matching = names.filter(|name| {
        matcher.is_match(Path::new(name)) && (!is_hidden(name) || is_hidden(pattern))
    });
    Ok(matching.map(|name| directory.join(name)).collect())
}

fn failed(path: &Path, error: io::Error) -> NoFiles {
    NoFiles::Io {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_ordered_by_their_value() {
        let ordered = [
            "a.pcap", "a.pcap1", "a.pcap2", "a.pcap09", "a.pcap10", "a1b2", "a1b10", "a01c", "a2",
            "b",
        ];
        let mut shuffled: Vec<&OsStr> = ordered.iter().rev().map(OsStr::new).collect();
        shuffled.sort_by(|one, other| by_name(one, other));
        assert_eq!(shuffled, ordered.map(OsStr::new));
    }

    #[test]
    fn captures_are_known_by_their_names() {
        for name in [
            "a.pcap",
            "A.PCAPNG",
            "a.cap",
            "a.pcap7",
            "a.pcap.gz",
            "a.pcapng12.zst",
            "a.pcap.xz",
            "a.pcap.lz4",
        ] {
            assert!(is_capture(OsStr::new(name)), "{name}");
        }
        for name in [
            ".a.pcap",
            "a.pcap.tmp",
            "pcap",
            "a.csv",
            "a.gz",
            "a.pcap.gz.part",
        ] {
            assert!(!is_capture(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn names_stand_for_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("day1/inner.pcap")).unwrap();
        fs::create_dir_all(at("day2")).unwrap();
        for name in [
            "day1/x.pcap10",
            "day1/x.pcap9",
            "day1/notes.txt",
            "day1/.x.pcap",
            "day2/x.pcap",
            "[odd].pcap",
        ] {
            fs::write(at(name), "").unwrap();
        }
        let files = |names: &[&str]| {
            let names: Vec<PathBuf> = names.iter().map(|name| at(name)).collect();
            captures(&names).map(|files| {
                let inner = files.iter().map(|file| file.strip_prefix(folder.path()));
                let inner = inner.map(|file| file.unwrap().to_str().unwrap().to_owned());
                inner.collect::<Vec<_>>()
            })
        };
        assert_eq!(files(&["day1"]).unwrap(), ["day1/x.pcap9", "day1/x.pcap10"]);
        assert_eq!(
            files(&["day*/x.*"]).unwrap(),
            ["day1/x.pcap9", "day1/x.pcap10", "day2/x.pcap"]
        );
        // A file that is named twice is read once, at its first position.
        assert_eq!(
            files(&["day2/x.pcap", "day[12]/*"]).unwrap(),
            [
                "day2/x.pcap",
                "day1/notes.txt",
                "day1/x.pcap9",
                "day1/x.pcap10"
            ]
        );
        assert_eq!(files(&["[odd].pcap"]).unwrap(), ["[odd].pcap"]);
        for (name, why) in [
            ("day3", "No such file"),
            ("day3/*.pcap", "no file matches"),
            ("day*", "no file matches"),
            ("**/x.pcap", "** is not supported"),
            ("day1/x.[", "unclosed"),
            ("day1/inner.pcap", "the directory has no captures"),
        ] {
            let error = files(&[name]).unwrap_err().to_string();
            assert!(error.contains(why), "{name}: {error}");
        }
        assert_eq!(captures(&["-".into()]).unwrap(), [Path::new("-")]);
    }
}
