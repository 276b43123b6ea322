//! The sections of the file for each kind of part. The fields have the names of the commands'
//! flags.

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::{Path, PathBuf};

use control::config::Spanned;
use serde::Deserialize;
use serde::de::{self, Deserializer};
use units::{ByteRate, Size, Span};

use crate::apply::Options;
use crate::capture::Options as Following;
use crate::patterns::Patterns;
use crate::service::capture::Unseen;
use crate::service::freezer::Bound;
use crate::service::publish::{Broker, Tls};
use crate::service::{Job, apply, capture, publish, receive, serve};
use crate::ship::nats;
use crate::ship::tcp::{Files, Limits};

pub(super) trait Section {
    const KIND: &'static str;

    fn name(&self) -> Option<&Spanned<String>>;

    /// The positions of what it reads and what it writes.
    fn spans(&self) -> (Range<usize>, Range<usize>);

    /// The first error of the section, and its position.
    fn complaint(&self) -> Option<(Range<usize>, String)> {
        None
    }

    /// Converts the section. Relative paths are relative to this folder.
    fn job(self, folder: &Path) -> Job;
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Capture {
    name: Option<Spanned<String>>,
    tree: Spanned<PathBuf>,
    log: Spanned<PathBuf>,
    #[serde(default)]
    allow: Vec<Unseen>,
    #[serde(default)]
    journal: bool,
    #[serde(default)]
    fresh: bool,
    check: Option<Span>,
    pin: Option<PathBuf>,
    #[serde(default)]
    include: Vec<Spanned<String>>,
    #[serde(default)]
    exclude: Vec<Spanned<String>>,
    ring: Option<Spanned<Size>>,
    bounded: Option<Spanned<Size>>,
    cgroup: Option<Spanned<PathBuf>>,
    rate_limit: Option<ByteRate>,
    keep: Option<Size>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Serve {
    name: Option<Spanned<String>>,
    log: Spanned<PathBuf>,
    listen: Spanned<SocketAddr>,
    cert: PathBuf,
    key: PathBuf,
    clients_ca: PathBuf,
    replicas: Option<usize>,
    #[serde(default)]
    synced: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publish {
    name: Option<Spanned<String>>,
    log: Spanned<PathBuf>,
    to: Spanned<String>,
    creds: Option<PathBuf>,
    domain: Option<String>,
    key_file: Option<PathBuf>,
    server_ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    #[serde(default, deserialize_with = "servers")]
    replicas: Option<u8>,
    max_bytes: Option<u64>,
    #[serde(default)]
    allow_loss: bool,
    #[serde(default)]
    synced: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Receive {
    name: Option<Spanned<String>>,
    from: Spanned<String>,
    log: Spanned<PathBuf>,
    #[serde(default)]
    fresh: bool,
    #[serde(default)]
    rollback: bool,
    keep: Option<Size>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_ca: Option<PathBuf>,
    creds: Option<PathBuf>,
    domain: Option<String>,
    key_file: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Apply {
    name: Option<Spanned<String>>,
    log: Spanned<PathBuf>,
    to: Spanned<PathBuf>,
    #[serde(default)]
    fresh: bool,
    #[serde(default)]
    repair: bool,
    in_place: Option<u64>,
    max_bytes: Option<u64>,
    max_files: Option<u64>,
    #[serde(default)]
    allow_delete: bool,
    #[serde(default)]
    privileged: bool,
    check: Option<Span>,
}

/// The number of servers that may store a stream.
fn servers<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u8>, D::Error> {
    match u8::deserialize(from)? {
        number @ 1..=5 => Ok(Some(number)),
        number => Err(de::Error::custom(format!("replicas {number}: 1 to 5"))),
    }
}

fn texts(of: Vec<Spanned<String>>) -> Vec<String> {
    of.into_iter().map(Spanned::into_inner).collect()
}

fn within(folder: &Path, file: Option<PathBuf>) -> Option<PathBuf> {
    file.map(|file| folder.join(file))
}

impl Section for Capture {
    const KIND: &'static str = "capture";

    fn name(&self) -> Option<&Spanned<String>> {
        self.name.as_ref()
    }

    fn spans(&self) -> (Range<usize>, Range<usize>) {
        (self.tree.span(), self.log.span())
    }

    fn complaint(&self) -> Option<(Range<usize>, String)> {
        let alone = |at: Range<usize>| Some((at, "bounded and cgroup go together".to_owned()));
        match (&self.bounded, &self.cgroup) {
            (Some(bounded), None) => return alone(bounded.span()),
            (None, Some(cgroup)) => return alone(cgroup.span()),
            _ => {}
        }
        for pattern in self.include.iter().chain(&self.exclude) {
            let alone = Patterns::new(vec![pattern.get_ref().clone()], Vec::new());
            if let Err(wrong) = alone.check() {
                return Some((pattern.span(), wrong.to_string()));
            }
        }
        let ring = self.ring.as_ref()?;
        let Size(bytes) = ring.get_ref();
        let large = || (ring.span(), format!("ring {bytes} B: 2 GiB at most"));
        u32::try_from(*bytes).is_err().then(large)
    }

    fn job(self, folder: &Path) -> Job {
        Job::Capture(capture::Settings {
            tree: folder.join(self.tree.get_ref()),
            log: folder.join(self.log.get_ref()),
            fresh: self.fresh,
            journal: self.journal,
            pin: self.pin.map(|pin| folder.join(pin)),
            allow: self.allow,
            check: self.check.map(|Span(round)| round),
            patterns: Patterns::new(texts(self.include), texts(self.exclude)),
            ring_bytes: self.ring.map_or_else(
                || Following::default().ring_bytes,
                |ring| u32::try_from(ring.into_inner().0).unwrap_or(u32::MAX),
            ),
            bounded: self.bounded.zip(self.cgroup).map(|(bytes, cgroup)| Bound {
                bytes: bytes.into_inner().0,
                cgroup: folder.join(cgroup.into_inner()),
            }),
            rate_limit: self
                .rate_limit
                .and_then(|ByteRate(bytes)| NonZeroU64::new(bytes)),
            keep: self.keep.map(|Size(bytes)| bytes),
        })
    }
}

impl Section for Serve {
    const KIND: &'static str = "serve";

    fn name(&self) -> Option<&Spanned<String>> {
        self.name.as_ref()
    }

    fn spans(&self) -> (Range<usize>, Range<usize>) {
        (self.log.span(), self.listen.span())
    }

    fn job(self, folder: &Path) -> Job {
        Job::Serve(serve::Settings {
            log: folder.join(self.log.get_ref()),
            listen: self.listen.into_inner(),
            files: Files {
                certificate: folder.join(self.cert),
                key: folder.join(self.key),
                authority: folder.join(self.clients_ca),
            },
            replicas: self.replicas.unwrap_or_else(|| Limits::default().replicas),
            synced: self.synced,
        })
    }
}

impl Section for Publish {
    const KIND: &'static str = "publish";

    fn name(&self) -> Option<&Spanned<String>> {
        self.name.as_ref()
    }

    fn spans(&self) -> (Range<usize>, Range<usize>) {
        (self.log.span(), self.to.span())
    }

    fn job(self, folder: &Path) -> Job {
        Job::Publish(publish::Settings {
            log: folder.join(self.log.get_ref()),
            to: self.to.into_inner(),
            tls: Tls {
                cert: within(folder, self.cert),
                key: within(folder, self.key),
                server_ca: within(folder, self.server_ca),
            },
            broker: Broker {
                creds: within(folder, self.creds),
                domain: self.domain,
                key_file: within(folder, self.key_file),
            },
            stream: nats::Settings {
                replicas: self
                    .replicas
                    .unwrap_or_else(|| nats::Settings::default().replicas),
                max_bytes: self.max_bytes,
                allow_loss: self.allow_loss,
            },
            synced: self.synced,
        })
    }
}

impl Section for Receive {
    const KIND: &'static str = "receive";

    fn name(&self) -> Option<&Spanned<String>> {
        self.name.as_ref()
    }

    fn spans(&self) -> (Range<usize>, Range<usize>) {
        (self.from.span(), self.log.span())
    }

    fn job(self, folder: &Path) -> Job {
        Job::Receive(receive::Settings {
            from: self.from.into_inner(),
            log: folder.join(self.log.get_ref()),
            rollback: self.rollback,
            fresh: self.fresh,
            keep: self.keep.map(|Size(bytes)| bytes),
            tls: Tls {
                cert: within(folder, self.cert),
                key: within(folder, self.key),
                server_ca: within(folder, self.server_ca),
            },
            broker: Broker {
                creds: within(folder, self.creds),
                domain: self.domain,
                key_file: within(folder, self.key_file),
            },
        })
    }
}

impl Section for Apply {
    const KIND: &'static str = "apply";

    fn name(&self) -> Option<&Spanned<String>> {
        self.name.as_ref()
    }

    fn spans(&self) -> (Range<usize>, Range<usize>) {
        (self.log.span(), self.to.span())
    }

    fn job(self, folder: &Path) -> Job {
        Job::Apply(apply::Settings {
            log: folder.join(self.log.get_ref()),
            to: folder.join(self.to.get_ref()),
            options: Options {
                privileged: self.privileged,
                repair: self.repair,
                in_place: self.in_place,
                resync: false,
                max_bytes: self.max_bytes,
                max_files: self.max_files,
                allow_delete: self.allow_delete,
                ..Options::default()
            },
            anew: self.fresh,
            check: self.check.map(|Span(round)| round),
        })
    }
}
