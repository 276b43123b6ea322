//! The configuration of a running router: its shape, and every complaint with its line.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use control::config::{Document, Error, Http, Spanned};
use netdev::XdpMode;
use netdev::policy::Check;
use serde::Deserialize;
use units::Span;

use crate::cpu::af_xdp::MAX_BATCH;
use crate::rules;

/// Why the datapath kernel takes no table image.
pub const KERNEL_TABLE: &str = "the datapath kernel routes by the kernel's own tables";

/// No packet waits longer for others.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Where the control socket is by default.
pub const CONTROL: &str = "/run/lowroad-router/router.sock";

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub datapath: Datapath,
    /// Devices whose packets are routed, by name; of a VLAN device, its packets only.
    pub interfaces: Vec<String>,
    pub xdp_mode: XdpMode,
    /// Of `af-xdp`: each takes one queue of every device.
    pub threads: usize,
    pub batches: Batches,
    /// Of the hash by which flows are shared out among several next hops; none: another one each time.
    pub ecmp_seed: Option<u64>,
    /// Checks of the kernel that are skipped for packets that a datapath forwards past it.
    pub bypass: Vec<Check>,
    pub control: PathBuf,
    pub http: Option<Http>,
    /// A table image whose routes are routed by in place of the kernel's, and its rules.
    pub table: Option<PathBuf>,
    pub rules: Option<Rules>,
}

/// Where packets are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Datapath {
    /// In the driver, before the network stack.
    Xdp,
    /// By threads that the driver hands frames to, past the network stack.
    AfXdp,
    /// By the network stack itself.
    Kernel,
}

/// What is filtered by.
#[derive(Clone, Debug)]
pub struct Rules {
    pub file: PathBuf,
    pub options: rules::Options,
    /// Leaves to the kernel what rules cannot express, instead of refusing it.
    pub punt_unsupported: bool,
}

impl Datapath {
    pub const ALL: [Self; 3] = [Self::Xdp, Self::AfXdp, Self::Kernel];

    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::AfXdp => "af-xdp",
            Self::Kernel => "kernel",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    router: RouterSection,
    rules: Option<RulesSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouterSection {
    datapath: Datapath,
    interfaces: Option<Spanned<Vec<String>>>,
    xdp_mode: Option<Spanned<Mode>>,
    threads: Option<Spanned<usize>>,
    batch: Option<Spanned<usize>>,
    batch_wait: Option<Spanned<Span>>,
    device: Option<Spanned<String>>,
    fallback: Option<Spanned<Fallback>>,
    ecmp_seed: Option<Spanned<u64>>,
    bypass: Option<Spanned<Vec<Spanned<String>>>>,
    control: Option<PathBuf>,
    http: Option<Spanned<Http>>,
    table: Option<Spanned<PathBuf>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Native,
    Generic,
}

/// What goes on when a device is lost.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fallback {
    Cpu,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesSection {
    file: Spanned<PathBuf>,
    format: Option<Spanned<String>>,
    #[serde(default)]
    hook: Hook,
    #[serde(default)]
    tables: Vec<String>,
    #[serde(default)]
    punt_unsupported: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Hook {
    #[default]
    Forward,
    Input,
}

/// Reads and checks a file. Rules and the table image are named relative to it.
///
/// # Errors
/// The first complaint.
pub fn load(path: &Path) -> Result<Config, Error> {
    check(&Document::read(path)?, path.parent())
}

fn check(document: &Document, folder: Option<&Path>) -> Result<Config, Error> {
    let File { router, rules } = document.parse()?;
    let batches = router.batches(document)?;
    let bypass = router.bypass(document)?;
    if let (Datapath::Kernel, Some(seed)) = (router.datapath, &router.ecmp_seed) {
        let message = "ecmp_seed: the datapath kernel shares flows out by its own hash";
        return Err(document.error(seed.span(), message));
    }
    let http = Http::check(router.http, document)?;
    if let (Datapath::Kernel, Some(table)) = (router.datapath, &router.table) {
        return Err(document.error(table.span(), format!("table: {KERNEL_TABLE}")));
    }
    let interfaces = match (router.datapath, router.interfaces) {
        (_, Some(named)) if !named.get_ref().is_empty() => named.into_inner(),
        (Datapath::Kernel, _) => Vec::new(),
        (Datapath::Xdp | Datapath::AfXdp, empty) => {
            let message = "interfaces: name the devices whose packets are routed";
            let span = empty.map_or(0..0, |empty| empty.span());
            return Err(document.error(span, message));
        }
    };
    if let Some(threads) = &router.threads
        && let Some(complaint) = threads_complaint(router.datapath, *threads.get_ref())
    {
        return Err(document.error(threads.span(), format!("threads: {complaint}")));
    }
    let rules = rules.map(|section| section.check(document, folder));
    Ok(Config {
        datapath: router.datapath,
        interfaces,
        xdp_mode: match router.xdp_mode.map(Spanned::into_inner) {
            None | Some(Mode::Native) => XdpMode::Native,
            Some(Mode::Generic) => XdpMode::Generic,
        },
        threads: router.threads.map_or(1, Spanned::into_inner),
        batches,
        ecmp_seed: router.ecmp_seed.map(Spanned::into_inner),
        bypass,
        control: router.control.unwrap_or_else(|| CONTROL.into()),
        http,
        table: router
            .table
            .map(|table| within(folder, &table.into_inner())),
        rules: rules.transpose()?,
    })
}

/// What is wrong with a number of threads.
pub fn threads_complaint(datapath: Datapath, threads: usize) -> Option<&'static str> {
    match (datapath, threads) {
        (Datapath::AfXdp, 0) => Some("at least one"),
        (Datapath::AfXdp, _) => None,
        _ => Some("only the datapath af-xdp has threads"),
    }
}

/// How packets are put together, and where they are decided about: of `af-xdp` alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    /// The most packets that are decided about together.
    pub batch: usize,
    /// How long the first of them waits for others.
    pub wait: Duration,
    /// On which device they are decided about, as `lowroad router devices` names it.
    pub device: Option<String>,
    /// Whether CPUs go on when it is lost.
    pub fallback: bool,
}

impl Default for Batches {
    fn default() -> Self {
        Self {
            batch: 256,
            wait: Duration::ZERO,
            device: None,
            fallback: false,
        }
    }
}

impl Batches {
    /// What is wrong with it, by the name of the setting.
    pub fn complaint(&self, datapath: Datapath) -> Option<(&'static str, String)> {
        let usual = Self::default();
        if datapath != Datapath::AfXdp {
            let set = [
                ("batch", self.batch != usual.batch),
                ("batch_wait", self.wait != usual.wait),
                ("device", self.device.is_some()),
                ("fallback", self.fallback),
            ];
            let set = set.into_iter().find(|(_, set)| *set);
            return set.map(|(name, _)| (name, "only the datapath af-xdp has it".to_owned()));
        }
        if self.batch == 0 || self.batch > MAX_BATCH {
            return Some(("batch", format!("1 to {MAX_BATCH}")));
        }
        if self.wait > MAX_WAIT {
            return Some(("batch_wait", "at most a second".to_owned()));
        }
        if self.fallback && self.device.is_none() {
            let what = "goes on when a device is lost: name the device";
            return Some(("fallback", what.to_owned()));
        }
        None
    }
}

impl RouterSection {
    fn batches(&self, document: &Document) -> Result<Batches, Error> {
        let usual = Batches::default();
        let batches = Batches {
            batch: self
                .batch
                .as_ref()
                .map_or(usual.batch, |set| *set.get_ref()),
            wait: self
                .batch_wait
                .as_ref()
                .map_or(usual.wait, |set| set.get_ref().0),
            device: self.device.as_ref().map(|set| set.get_ref().clone()),
            fallback: self.fallback.is_some(),
        };
        let Some((name, what)) = batches.complaint(self.datapath) else {
            return Ok(batches);
        };
        let span = match name {
            "batch" => self.batch.as_ref().map(Spanned::span),
            "batch_wait" => self.batch_wait.as_ref().map(Spanned::span),
            "device" => self.device.as_ref().map(Spanned::span),
            _ => self.fallback.as_ref().map(Spanned::span),
        };
        Err(document.error(span.unwrap_or(0..0), format!("{name}: {what}")))
    }

    fn bypass(&self, document: &Document) -> Result<Vec<Check>, Error> {
        let Some(named) = &self.bypass else {
            return Ok(Vec::new());
        };
        if self.datapath == Datapath::Kernel {
            let message = "bypass: the datapath kernel forwards all packets itself";
            return Err(document.error(named.span(), message));
        }
        let check = |name: &Spanned<String>| {
            let check = Check::named(name.get_ref(), Check::FORWARD);
            check.map_err(|error| document.error(name.span(), format!("bypass: {error}")))
        };
        named.get_ref().iter().map(check).collect()
    }
}

fn within(folder: Option<&Path>, file: &Path) -> PathBuf {
    folder.map_or_else(|| file.to_owned(), |folder| folder.join(file))
}

impl RulesSection {
    fn check(self, document: &Document, folder: Option<&Path>) -> Result<Rules, Error> {
        let format = self.format.map(|name| {
            let format = rules::Format::from_str(name.get_ref());
            format.map_err(|error| document.error(name.span(), error.to_string()))
        });
        let file = self.file.into_inner();
        Ok(Rules {
            file: within(folder, &file),
            options: rules::Options {
                format: format.transpose()?,
                hook: match self.hook {
                    Hook::Forward => rules::Hook::Forward,
                    Hook::Input => rules::Hook::Input,
                },
                tables: self.tables,
            },
            punt_unsupported: self.punt_unsupported,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let document = Document::new("r.toml", text);
        check(&document, Some(Path::new("/etc"))).map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_file_is_taken() {
        let config = read(
            "[router]\ndatapath = \"xdp\"\ninterfaces = [\"eth1\"]\nxdp_mode = \"generic\"\n\
             control = \"/run/r.sock\"\nhttp = { listen = \"127.0.0.1:9\", token_file = \"/t\" }\n\
             table = \"t.lrt\"\n[rules]\nfile = \"fw.json\"\nformat = \"nft\"\nhook = \"input\"\n",
        )
        .unwrap();
        assert_eq!(
            (config.datapath, config.xdp_mode),
            (Datapath::Xdp, XdpMode::Generic)
        );
        assert_eq!(config.table.as_deref(), Some(Path::new("/etc/t.lrt")));
        let rules = config.rules.unwrap();
        assert_eq!(rules.file, Path::new("/etc/fw.json"));
        assert_eq!(rules.options.hook, rules::Hook::Input);
        let config = read(
            "[router]\ndatapath = \"af-xdp\"\ninterfaces = [\"a\"]\nbatch = 1024\n\
             batch_wait = \"50us\"\ndevice = \"opencl:0\"\nfallback = \"cpu\"\n",
        )
        .unwrap();
        let wanted = Batches {
            batch: 1024,
            wait: Duration::from_micros(50),
            device: Some("opencl:0".to_owned()),
            fallback: true,
        };
        assert_eq!(config.batches, wanted);
        assert_eq!((config.ecmp_seed, config.bypass), (None, vec![]));
        let config = read(
            "[router]\ndatapath = \"xdp\"\ninterfaces = [\"a\"]\necmp_seed = 7\n\
             bypass = [\"nft-forward\", \"rp-filter\"]\n",
        )
        .unwrap();
        assert_eq!(config.ecmp_seed, Some(7));
        assert_eq!(config.bypass, [Check::NftForward, Check::ReversePath]);
        let config = read("[router]\ndatapath = \"kernel\"\n").unwrap();
        assert_eq!(config.control, Path::new(CONTROL));
    }

    #[test]
    fn complaints_name_their_lines() {
        let complaints = [
            (
                "[router]\ndatapath = \"xpd\"\n",
                "r.toml:2: unknown value \"xpd\"; did you mean \"xdp\"?",
            ),
            (
                "[router]\ndatapath = \"xdp\"\ninterfaces = []\n",
                "r.toml:3: interfaces: name the devices whose packets are routed",
            ),
            (
                "[router]\ndatapath = \"af-xdp\"\n",
                "r.toml:1: interfaces: name the devices whose packets are routed",
            ),
            (
                "[router]\ndatapath = \"af-xdp\"\ninterfaces = [\"a\"]\nthreads = 0\n",
                "r.toml:4: threads: at least one",
            ),
            (
                "[router]\ndatapath = \"xdp\"\ninterfaces = [\"a\"]\nthreads = 2\n",
                "r.toml:4: threads: only the datapath af-xdp has threads",
            ),
            (
                "[router]\ndatapath = \"xdp\"\ninterfaces = [\"a\"]\ndevice = \"opencl:0\"\n",
                "r.toml:4: device: only the datapath af-xdp has it",
            ),
            (
                "[router]\ndatapath = \"af-xdp\"\ninterfaces = [\"a\"]\nbatch = 4096\n",
                "r.toml:4: batch: 1 to 2048",
            ),
            (
                "[router]\ndatapath = \"af-xdp\"\ninterfaces = [\"a\"]\nfallback = \"cpu\"\n",
                "r.toml:4: fallback: goes on when a device is lost: name the device",
            ),
            (
                "[router]\ndatapath = \"xdp\"\ninterfaces = [\"a\"]\nbypass = [\n\"nft-forwarding\"]\n",
                "r.toml:5: bypass: `nft-forwarding` is unknown; the checks are tc-ingress, nft-ingress, nft-prerouting, controller, ip-rules, forwarding, rp-filter, ipvs, ipsec-forward, nft-forward, ipsec-out, nft-postrouting, nft-egress, tc-egress",
            ),
            (
                "[router]\ndatapath = \"kernel\"\nbypass = [\"nft-forward\"]\n",
                "r.toml:3: bypass: the datapath kernel forwards all packets itself",
            ),
            (
                "[router]\ndatapath = \"kernel\"\necmp_seed = 1\n",
                "r.toml:3: ecmp_seed: the datapath kernel shares flows out by its own hash",
            ),
            (
                "[router]\ndatapath = \"kernel\"\ntable = \"t.lrt\"\n",
                "r.toml:3: table: the datapath kernel routes by the kernel's own tables",
            ),
            (
                "[router]\ndatapath = \"kernel\"\nhttp = { listen = \"192.0.2.1:9\", token_file = \"/t\" }\n",
                "r.toml:3: http: 192.0.2.1:9 is not a loopback address",
            ),
            (
                "[router]\ndatapth = \"xdp\"\n",
                "r.toml:2: unknown key \"datapth\"; did you mean \"datapath\"?",
            ),
        ];
        for (text, complaint) in complaints {
            assert_eq!(read(text).unwrap_err(), complaint);
        }
        let unknown = "[router]\ndatapath = \"xdp\"\ninterfaces = [\"a\"]\n[rules]\nfile = \"a\"\nformat = \"pf\"\n";
        assert!(read(unknown).unwrap_err().starts_with("r.toml:6: "));
    }
}
