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
    let mut command = Command::new("tshark");
    // A port known for something else must not hide what the bytes are.
    command.args(["-n", "-o", "tcp.try_heuristic_first:TRUE"]);
    command.arg("-r").arg(path).args(["-Y", filter]);
    command.args(["-T", "fields", "-E", "occurrence=f"]);
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
