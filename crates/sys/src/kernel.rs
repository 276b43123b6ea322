//! The kernel of this machine: release, build options, type information.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use flate2::read::GzDecoder;

/// A kernel release, ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
    /// The text of `uname -r`.
    pub text: String,
}

impl Release {
    /// The running kernel's.
    ///
    /// # Errors
    /// The release does not begin with two numbers.
    pub fn running() -> io::Result<Self> {
        let name = nix::sys::utsname::uname()?;
        let text = name.release().to_string_lossy();
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("no kernel release: {text}")))
    }

    /// Reads `6.1.0-18-amd64`, `6.18.44`, `6.8-rc1`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text
            .split(|c: char| !c.is_ascii_digit())
            .map(str::parse::<u32>);
        Some(Self {
            major: numbers.next()?.ok()?,
            minor: numbers.next()?.ok()?,
            patch: match text.split('.').nth(2) {
                Some(_) => numbers.next()?.ok()?,
                None => 0,
            },
            text: text.to_owned(),
        })
    }

    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The setting of a build option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    BuiltIn,
    Module,
    Off,
    /// The kernel does not say how it was built.
    Unknown,
}

/// The options the running kernel was built with.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Empty when the kernel does not say.
    text: String,
}

impl Config {
    /// Reads /proc/config.gz, else /boot/config-RELEASE; knows nothing when there is neither.
    pub fn running() -> Self {
        let text = read_gz(Path::new("/proc/config.gz")).or_else(|_| {
            let release = Release::running()?;
            fs::read_to_string(format!("/boot/config-{release}"))
        });
        Self {
            text: text.unwrap_or_default(),
        }
    }

    /// The setting of an option, named with its `CONFIG_`.
    pub fn get(&self, option: &str) -> Setting {
        if self.text.is_empty() {
            return Setting::Unknown;
        }
        match self.value(option) {
            Some("y") => Setting::BuiltIn,
            Some("m") => Setting::Module,
            _ => Setting::Off,
        }
    }

    /// The text after `CONFIG_HZ=`, for options that are not y or m.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.text
            .lines()
            .find_map(|line| line.strip_prefix(option)?.strip_prefix('='))
    }
}

fn read_gz(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether the kernel publishes its types, which every BPF program here needs.
pub fn has_btf() -> bool {
    Path::new("/sys/kernel/btf/vmlinux").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Option<(u32, u32, u32)> {
        Release::parse(text).map(|release| (release.major, release.minor, release.patch))
    }

    #[test]
    fn releases_of_several_distributions() {
        assert_eq!(numbers("6.1.0-18-cloud-amd64"), Some((6, 1, 0)));
        assert_eq!(numbers("6.18.44"), Some((6, 18, 44)));
        assert_eq!(numbers("6.8-rc1"), Some((6, 8, 0)));
        assert_eq!(numbers("5.15.0-1034.42-generic"), Some((5, 15, 0)));
        assert_eq!(numbers("linux"), None);
    }

    #[test]
    fn releases_compare_by_number() {
        let release = Release::parse("6.10.1").unwrap();
        assert!(release.at_least(6, 9));
        assert!(release.at_least(5, 19));
        assert!(!release.at_least(6, 11));
    }

    #[test]
    fn options_are_found_by_their_whole_name() {
        let config = Config {
            text: "CONFIG_BPF=y\nCONFIG_VETH=m\n# CONFIG_VLAN is not set\nCONFIG_HZ=250\n".into(),
        };
        assert_eq!(config.get("CONFIG_BPF"), Setting::BuiltIn);
        assert_eq!(config.get("CONFIG_VETH"), Setting::Module);
        assert_eq!(config.get("CONFIG_VLAN"), Setting::Off);
        assert_eq!(config.get("CONFIG_BP"), Setting::Off);
        assert_eq!(config.value("CONFIG_HZ"), Some("250"));
        assert_eq!(Config::default().get("CONFIG_BPF"), Setting::Unknown);
    }

    #[test]
    fn the_running_kernel_has_a_release() {
        assert!(Release::running().unwrap().at_least(3, 0));
    }
}
