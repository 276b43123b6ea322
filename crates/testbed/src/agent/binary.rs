//! Where the agent's program is.

use std::path::{Path, PathBuf};

use datapath::Missing;

/// The file name of the agent's program.
pub(crate) const AGENT: &str = "netbench-agent";

/// The agent's program: the file that `LOWROAD_AGENT` names, else where a build puts it, else beside this
/// program.
pub fn agent() -> Result<PathBuf, Missing> {
    let named = std::env::var_os("LOWROAD_AGENT").map(PathBuf::from);
    agent_of(named, &std::env::current_exe().unwrap_or_default())
}

fn agent_of(named: Option<PathBuf>, own: &Path) -> Result<PathBuf, Missing> {
    if let Some(named) = named {
        return match named.is_file() {
            true => Ok(named),
            false => Err(Missing::new(
                format!("LOWROAD_AGENT: {} is not a file", named.display()),
                "cargo xtask agent, and leave it unset",
            )),
        };
    }
    let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    // Tests are some folders below their build.
    let built = own
        .ancestors()
        .map(|folder| folder.join(&triple).join("agent").join(AGENT));
    let beside = own.parent().map(|folder| folder.join(AGENT));
    built
        .chain(beside)
        .find(|program| program.is_file())
        .ok_or_else(|| Missing::new(format!("{AGENT} is not built"), "cargo xtask agent"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn agent_is_searched_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let make = |path: &str| {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "").unwrap();
        };
        let own = at("target/debug/deps/lowroad-compare");
        let missing = agent_of(None, &own).unwrap_err();
        assert_eq!(missing.remedy, "cargo xtask agent");
        make("target/debug/deps/netbench-agent");
        let beside = agent_of(None, &own).unwrap();
        assert_eq!(beside, at("target/debug/deps/netbench-agent"));
        let triple = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let built = format!("target/{triple}/agent/netbench-agent");
        make(&built);
        assert_eq!(agent_of(None, &own).unwrap(), at(&built));
        make("elsewhere");
        let named = agent_of(Some(at("elsewhere")), &own).unwrap();
        assert_eq!(named, at("elsewhere"));
        let wrong = agent_of(Some(at("nowhere")), &own).unwrap_err();
        assert!(wrong.what.contains("nowhere is not a file"), "{wrong}");
    }
}
