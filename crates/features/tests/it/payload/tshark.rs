//! What tshark reads in a capture, in the form of ours.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use sys::require::{self, Class};

/// Whether it is installed; reports the skip when not.
pub(crate) fn present() -> bool {
    let present = Command::new("tshark").arg("--version").output().is_ok();
    if !present {
        require::skip(Class::Core, "tshark is not installed");
    }
    present
}

/// The fields of every frame that a filter shows, the first occurrence of each; `None` if this
/// tshark does not know them all.
fn fields<const N: usize>(
    path: &Path,
    filter: &str,
    fields: [&str; N],
) -> Option<Vec<[String; N]>> {
    occurrences(path, filter, fields, "f")
}

/// The same with the first (`f`) or all (`a`) occurrences of each, with commas between.
fn occurrences<const N: usize>(
    path: &Path,
    filter: &str,
    fields: [&str; N],
    which: &str,
) -> Option<Vec<[String; N]>> {
    let mut command = Command::new("tshark");
    // A port known for something else must not hide what the bytes are.
    command.args(["-n", "-o", "tcp.try_heuristic_first:TRUE"]);
    command.arg("-r").arg(path).args(["-Y", filter]);
    command.args(["-T", "fields", "-E", &format!("occurrence={which}")]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let split = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
    let lines = text.lines().map(|line| split(line).try_into().unwrap());
    output.status.success().then(|| lines.collect())
}

/// By frame: a field of the hello that a stream begins with, where tshark knows it.
pub(crate) fn of_hellos(path: &Path, field: &str) -> Option<BTreeMap<usize, String>> {
    let shown = fields(
        path,
        "tcp and tls.handshake.type == 1",
        ["frame.number", "tcp.stream", "tcp.seq", field],
    )?;
    let mut streams = BTreeSet::new();
    let mut is_first = |stream: &String| streams.insert(stream.clone());
    let first = shown
        .into_iter()
        .filter(|[_, stream, sequence, _]| sequence == "1" && is_first(stream));
    let read = |[frame, _, _, value]: [String; 4]| (frame.parse().unwrap(), escaped(&value));
    Some(first.map(read).collect())
}

/// What a ClientHello in QUIC says, number lists as tshark prints them.
#[derive(Clone, Debug)]
pub(crate) struct QuicHello {
    pub(crate) version: u32,
    pub(crate) sni: String,
    pub(crate) alpn: String,
    pub(crate) ciphers: String,
    pub(crate) extensions: String,
    pub(crate) versions: String,
    pub(crate) algorithms: String,
}

/// The first ClientHello of every stream of QUIC.
pub(crate) fn quic_hellos(path: &Path) -> Vec<QuicHello> {
    let shown = occurrences(
        path,
        "quic and tls.handshake.type == 1",
        [
            "udp.stream",
            "quic.version",
            "tls.handshake.extensions_server_name",
            "tls.handshake.extensions_alpn_str",
            "tls.handshake.ciphersuite",
            "tls.handshake.extension.type",
            "tls.handshake.extensions.supported_version",
            "tls.handshake.sig_hash_alg",
        ],
        "a",
    );
    let mut streams = BTreeSet::new();
    let mut hellos = Vec::new();
    for [
        stream,
        version,
        sni,
        alpn,
        ciphers,
        extensions,
        versions,
        algorithms,
    ] in shown.unwrap()
    {
        if streams.insert(stream) {
            // Coalesced packets have one each; the hello is the last one's.
            let version = version.rsplit(',').next().unwrap().trim_start_matches("0x");
            hellos.push(QuicHello {
                version: u32::from_str_radix(version, 16).unwrap(),
                sni: escaped(&sni),
                alpn,
                ciphers,
                extensions,
                versions,
                algorithms,
            });
        }
    }
    hellos
}

/// By frame: the name of the first question in a datagram.
pub(crate) fn dns_names(path: &Path) -> BTreeMap<usize, String> {
    let shown = fields(
        path,
        "udp and dns.qry.name and not icmp",
        ["frame.number", "dns.qry.name"],
    );
    shown
        .unwrap()
        .into_iter()
        .map(|[frame, name]| {
            let name = if name == "<Root>" { "." } else { &name };
            (frame.parse().unwrap(), escaped(name))
        })
        .collect()
}

/// tshark shows multicast DNS's UTF-8 as it is.
fn escaped(name: &str) -> String {
    let one = |byte: u8| match byte {
        b'!'..=b'~' => char::from(byte).to_lowercase().to_string(),
        _ => format!("\\{byte:03}"),
    };
    name.bytes().map(one).collect()
}
