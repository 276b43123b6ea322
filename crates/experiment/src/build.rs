//! Which binaries ran: two builds of one version may measure differently.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use twox_hash::XxHash64;

use crate::catalog;
use crate::environment::NATIVE;
use crate::program::lowroad;

/// Program of a job in an environment to the hash of its file (XXH64, hexadecimal), or to `unknown`.
pub(crate) fn identity(job: &str, environment: &str) -> BTreeMap<&'static str, String> {
    // The link still leads to what runs after a new build has taken the file's place.
    let own = PathBuf::from("/proc/self/exe");
    let mut programs = vec![("lowroad-compare", own), ("lowroad", in_path(lowroad()))];
    // It starts programs in guests, and takes part in every trial of some jobs.
    if environment != NATIVE || catalog::job(job).is_some_and(|job| job.agent) {
        programs.push(("netbench-agent", testbed::agent().unwrap_or_default()));
    }
    let hashes = programs.into_iter().map(|(program, path)| {
        let hash = hash(&path).map(|hash| format!("{hash:016x}"));
        (program, hash.unwrap_or_else(|_| "unknown".to_owned()))
    });
    hashes.collect()
}

/// The file that a bare program name stands for.
fn in_path(program: PathBuf) -> PathBuf {
    if program.components().count() > 1 {
        return program;
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .map(|folder| folder.join(&program))
        .find(|path| path.is_file())
        .unwrap_or(program)
}

fn hash(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let mut hasher = XxHash64::with_seed(0);
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish()),
            length => hasher.write(&piece[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_byte_makes_another_build() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut image = vec![7; 3 << 20];
        fs::write(&path, &image).unwrap();
        let before = hash(&path).unwrap();
        assert_eq!(hash(&path).unwrap(), before);
        image[2 << 20] ^= 1;
        fs::write(&path, &image).unwrap();
        assert_ne!(hash(&path).unwrap(), before);
    }

    #[test]
    fn this_program_has_a_hash() {
        assert_eq!(identity("relay", NATIVE)["lowroad-compare"].len(), 16);
    }

    #[test]
    fn the_agent_is_told_of_where_it_has_a_part() {
        let told = |job, environment| identity(job, environment).contains_key("netbench-agent");
        assert!(told("netbench", NATIVE) && told("relay", "vm"));
        assert!(!told("relay", NATIVE));
    }
}
