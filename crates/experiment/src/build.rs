//! Which binaries ran: two builds of one version may measure differently.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::catalog;
use crate::environment::NATIVE;
use crate::program::{Lowroad, file_hash};

/// Program of a job in an environment to the hash of its file (XXH64, hexadecimal), or to `unknown`.
pub(crate) fn identity(job: &str, environment: &str) -> BTreeMap<&'static str, String> {
    // The link still leads to what runs after a new build has taken the file's place.
    let own = PathBuf::from("/proc/self/exe");
    let mut programs = vec![
        ("lowroad-compare", own),
        ("lowroad", in_path(Lowroad::own().path().to_owned())),
    ];
    // It starts programs in guests, and takes part in every trial of some jobs.
    if environment != NATIVE || catalog::job(job).is_some_and(|job| job.agent) {
        programs.push(("netbench-agent", testbed::agent().unwrap_or_default()));
    }
    let hashes = programs.into_iter().map(|(program, path)| {
        let hash = file_hash(&path);
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

#[cfg(test)]
mod tests {
    use super::*;

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
