//! Our side of the comparison: the schema's rows of a capture, and the capture as NFStream reads it.

use std::fs;
use std::path::Path;

use features::Options;
use features::dissect::{Fragment, Packet, Tunnels, dissect};
use features::flow::Timers;
use features::pcap::{Progress, Run};
use features::schema;
use features::sink::{FileSink, Format, Mode, Rotation};
use packet::pcap::{OwnedFrame, Reader, Writer};

use super::peer::{Row, Rows};

/// Flows as NFStream parts them: timeouts alone end them, and VLANs tell them apart.
fn options(tunnels: Tunnels) -> Options {
    Options {
        timers: Timers {
            linger_ns: None,
            ..Timers::default()
        },
        tunnels,
        by_vlan: true,
        ..Options::default()
    }
}

/// The rows of a capture.
pub(crate) fn rows(capture: &[u8], tunnels: Tunnels) -> Rows {
    let run = Run {
        options: options(tunnels),
        schema: schema::find("nfstream.v1").unwrap(),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.jsonl");
    let sink = FileSink::create(
        &path,
        Format::JsonLines,
        &run.arrow_schema(),
        Rotation::default(),
        Mode::Whole,
    )
    .unwrap();
    let summary = run.run(capture, Box::new(sink), &Progress::default());
    assert!(summary.output.is_none(), "{summary:?}");
    assert_eq!(summary.counters.unaccounted(), 0, "{summary:?}");
    let text = fs::read_to_string(path).unwrap();
    let rows: Vec<Row> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names = run.schema.columns();
    Rows {
        names: names.iter().map(|column| column.name.to_owned()).collect(),
        rows,
    }
}

/// A capture file's frames, up to where it is broken.
pub(crate) fn frames(path: &Path) -> Vec<OwnedFrame> {
    let bytes = fs::read(path).unwrap();
    let frames = Reader::new(bytes.as_slice()).unwrap();
    frames.map_while(Result::ok).collect()
}

/// A capture file of these frames.
pub(crate) fn capture(frames: &[OwnedFrame]) -> Vec<u8> {
    let link_type = frames.first().map_or(1, |frame| frame.link_type);
    let mut writer = Writer::new(Vec::new(), link_type).unwrap();
    for frame in frames {
        assert_eq!(frame.link_type, link_type, "one link type in a file");
        writer
            .write_cut(frame.timestamp_ns, frame.original_length, &frame.frame)
            .unwrap();
    }
    writer.finish().unwrap()
}

/// What NFStream makes of frames before it counts them.
#[derive(Debug)]
pub(crate) struct NfstreamInput {
    /// Those that it counts, at the times that it counts them at.
    pub(crate) frames: Vec<OwnedFrame>,
    /// Packets that it leaves out and we count.
    pub(crate) left_out: u64,
    /// It has moved a packet to a later millisecond, because the clock went back.
    pub(crate) moved: bool,
}

/// Applies what the documentation says of fragments, cut-off packets, and the clock.
pub(crate) fn as_nfstream_sees(frames: &[OwnedFrame]) -> NfstreamInput {
    let mut seen = NfstreamInput {
        frames: Vec::new(),
        left_out: 0,
        moved: false,
    };
    let mut clock_ms = 0;
    for captured in frames {
        let Ok(packet) = dissect(&captured.as_frame(), Tunnels::Outer) else {
            continue;
        };
        if leaves_out(&packet) {
            seen.left_out += 1;
            continue;
        }
        let time_ms = captured.timestamp_ns / 1_000_000;
        seen.moved |= time_ms < clock_ms;
        clock_ms = clock_ms.max(time_ms);
        seen.frames.push(OwnedFrame {
            timestamp_ns: clock_ms * 1_000_000,
            ..captured.clone()
        });
    }
    seen
}

fn leaves_out(packet: &Packet<'_>) -> bool {
    let cut_off_v6 = packet.key.version == 6 && packet.truncated;
    packet.fragment == Fragment::Later || cut_off_v6
}
