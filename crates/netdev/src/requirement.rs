//! The requirements of datapaths, probes and generators: the one list of checks, each with its message and its remedy.
//!
//! Whoever needs something names it in a list of requirements, which [`check`] goes through. A check loads nothing and
//! changes nothing.

use std::env;
use std::io;
use std::sync::LazyLock;

use datapath::Missing;
use sys::caps::{Capability, Effective};
use sys::kernel::{self, Config, Release, Setting};

/// Something that a machine has or lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// All of these in this process's effective set.
    Capabilities(&'static [Capability]),
    /// The kernel's type information (BTF).
    TypeInformation,
    /// A kernel of at least this release.
    Kernel { major: u32, minor: u32 },
    /// An option that the kernel was built with, named with its `CONFIG_`. A kernel that does not say how it was built
    /// passes.
    KernelOption(&'static str),
    /// AF_XDP sockets, which this process may open.
    AfXdp,
    /// Any of the above, with another way out than the usual one, which the remedy names after `or`.
    Else(&'static Self, &'static str),
}

/// Checks requirements in their order.
///
/// # Errors
/// The first one that this machine lacks.
pub fn check(requirements: &[Requirement]) -> Result<(), Missing> {
    requirements
        .iter()
        .try_for_each(|requirement| requirement.check())
}

impl Requirement {
    /// Why this machine lacks it.
    pub fn check(self) -> Result<(), Missing> {
        match self {
            Self::Capabilities(wanted) => capabilities(wanted),
            Self::TypeInformation => type_information(),
            Self::Kernel { major, minor } => at_least(major, minor),
            Self::KernelOption(option) => built_with(option),
            Self::AfXdp => sys::socket::af_xdp()
                .map(drop)
                .map_err(|error| af_xdp(&error)),
            Self::Else(requirement, alternative) => requirement.check().map_err(|mut missing| {
                missing.remedy += ", or ";
                missing.remedy += alternative;
                missing
            }),
        }
    }
}

fn capabilities(wanted: &[Capability]) -> Result<(), Missing> {
    let effective = Effective::read().map_err(|error| {
        Missing::new(
            format!("cannot read this process's capabilities: {error}"),
            "mount /proc",
        )
    })?;
    let missing = effective.missing(wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
    Err(Missing::new(
        format!("needs {}", names.join(" and ")),
        format!("run with sudo{}", setcap(wanted).unwrap_or_default()),
    ))
}

/// The command that gives this program the capabilities. None for a program that cannot be found on the disk, such as one
/// that was replaced while it ran.
fn setcap(wanted: &[Capability]) -> Option<String> {
    let program = env::current_exe().ok().filter(|path| path.exists())?;
    let names: Vec<String> = wanted
        .iter()
        .map(|capability| capability.to_string().to_lowercase())
        .collect();
    Some(format!(
        ", or: sudo setcap {}+ep {}",
        names.join(","),
        program.display()
    ))
}

fn type_information() -> Result<(), Missing> {
    match kernel::has_btf() {
        true => Ok(()),
        false => Err(Missing::new(
            "the kernel publishes no type information",
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF",
        )),
    }
}

fn at_least(major: u32, minor: u32) -> Result<(), Missing> {
    let running = match Release::running() {
        Ok(release) if release.at_least(major, minor) => return Ok(()),
        Ok(release) => format!("this is {release}"),
        Err(error) => error.to_string(),
    };
    Err(Missing::new(
        format!("needs Linux {major}.{minor}, {running}"),
        "boot a newer kernel",
    ))
}

fn built_with(option: &str) -> Result<(), Missing> {
    // Reading it takes milliseconds: the kernel has it compressed.
    static CONFIG: LazyLock<Config> = LazyLock::new(Config::running);
    match CONFIG.get(option) {
        Setting::Off => Err(Missing::new(
            format!("the kernel lacks {option}"),
            "no remedy on this kernel",
        )),
        Setting::BuiltIn | Setting::Module | Setting::Unknown => Ok(()),
    }
}

/// Explains a refusal to open an AF_XDP socket, or to register its memory.
pub fn af_xdp(error: &io::Error) -> Missing {
    match sys::socket::is_no_family(error) {
        true => Missing::new(
            "AF_XDP is not built into this kernel (CONFIG_XDP_SOCKETS)",
            "boot a kernel built with CONFIG_XDP_SOCKETS",
        ),
        false => Missing::new(
            "AF_XDP needs CAP_NET_RAW and, for its memory, CAP_IPC_LOCK or a higher memlock limit",
            "run with sudo",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUTURE: Requirement = Requirement::Kernel {
        major: u32::MAX,
        minor: 0,
    };

    #[test]
    fn first_missing_requirement_is_reported() {
        let option = Requirement::KernelOption("CONFIG_LOWROAD_HAS_NO_SUCH_OPTION");
        let past = Requirement::Kernel { major: 2, minor: 6 };
        assert_eq!(check(&[past]), Ok(()));
        let missing = check(&[past, FUTURE, option]).unwrap_err();
        let wanted = format!("needs Linux {}.0, this is ", u32::MAX);
        assert!(missing.what.starts_with(&wanted), "{missing}");
        assert_eq!(missing.remedy, "boot a newer kernel");
    }

    #[test]
    fn alternative_is_added_to_the_remedy() {
        let missing = Requirement::Else(&FUTURE, "use tc").check().unwrap_err();
        assert_eq!(missing.remedy, "boot a newer kernel, or use tc");
    }

    #[test]
    fn refusals_of_af_xdp_are_told_apart() {
        let of = |code| af_xdp(&io::Error::from_raw_os_error(code)).remedy;
        // EAFNOSUPPORT and EPERM.
        assert_eq!(of(97), "boot a kernel built with CONFIG_XDP_SOCKETS");
        assert_eq!(of(1), "run with sudo");
    }
}
