//! The energy of all processor packages by their own meters (RAPL). Guests and older processors have no
//! such meters, and only root may read them.

use std::fs;
use std::path::{Path, PathBuf};

/// The kernel's folder of meters.
const POWERCAP: &str = "/sys/class/powercap";

/// A measurement under way.
#[derive(Debug)]
pub struct Meter {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    folder: PathBuf,
    before_uj: u64,
}

impl Meter {
    /// Starts measuring, where every package of this machine has a meter that can be read.
    pub fn start() -> Option<Self> {
        Self::start_at(Path::new(POWERCAP))
    }

    fn start_at(powercap: &Path) -> Option<Self> {
        let packages: Vec<Package> = fs::read_dir(powercap)
            .ok()?
            .flatten()
            .filter(|entry| is_package(&entry.file_name().to_string_lossy()))
            .map(|entry| {
                let folder = entry.path();
                let before_uj = number(&folder, "energy_uj")?;
                Some(Package { folder, before_uj })
            })
            .collect::<Option<_>>()?;
        (!packages.is_empty()).then_some(Self { packages })
    }

    /// Microjoules since the start, of all packages; none when a meter has gone.
    pub fn microjoules(&self) -> Option<u64> {
        self.packages.iter().map(Package::used).sum()
    }
}

impl Package {
    fn used(&self) -> Option<u64> {
        let now = number(&self.folder, "energy_uj")?;
        if now >= self.before_uj {
            return Some(now - self.before_uj);
        }
        // It wraps around after some minutes to hours.
        let range = number(&self.folder, "max_energy_range_uj")?;
        Some(range.checked_sub(self.before_uj)? + now)
    }
}

/// `intel-rapl:0`: not a part of a package (`intel-rapl:0:1`), nor the same one by another road
/// (`intel-rapl-mmio:0`).
fn is_package(name: &str) -> bool {
    name.strip_prefix("intel-rapl:")
        .is_some_and(|number| number.parse::<u16>().is_ok())
}

fn number(folder: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(folder.join(name)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(powercap: &Path, name: &str, energy_uj: u64) {
        let folder = powercap.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("energy_uj"), format!("{energy_uj}\n")).unwrap();
        fs::write(folder.join("max_energy_range_uj"), "1000\n").unwrap();
    }

    #[test]
    fn packages_are_summed_over_their_wrap_and_their_parts_left_out() {
        let powercap = tempfile::tempdir().unwrap();
        for (name, before) in [
            ("intel-rapl:0", 900),
            ("intel-rapl:1", 100),
            ("intel-rapl:0:0", 5),
        ] {
            package(powercap.path(), name, before);
        }
        let meter = Meter::start_at(powercap.path()).unwrap();
        for (name, after) in [
            ("intel-rapl:0", 50),
            ("intel-rapl:1", 130),
            ("intel-rapl:0:0", 500),
        ] {
            package(powercap.path(), name, after);
        }
        assert_eq!(meter.microjoules(), Some(150 + 30));
    }

    #[test]
    fn machine_without_meters_has_no_reading() {
        let powercap = tempfile::tempdir().unwrap();
        assert!(Meter::start_at(powercap.path()).is_none());
        assert!(Meter::start_at(&powercap.path().join("none")).is_none());
    }
}
