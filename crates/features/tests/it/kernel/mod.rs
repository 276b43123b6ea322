//! Frames through the kernel's programs by `BPF_PROG_TEST_RUN`, and rows to compare.

pub(crate) mod frames;
pub(crate) mod wire;

use std::fs::{self, File};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::ArrayRef;
use features::batch::Batcher;
use features::flow::{Flow, Limits, Table};
use features::kernel::{FlowPlane, Settings};
use features::schema;
use features::{Options, PacketReader};
use libbpf_rs::libbpf_sys;
use packet::pcap::{self, OwnedFrame};

/// `struct metadata` of bpf/frame.h.
const METADATA: u32 = 24;
const MAGIC: u32 = 0x6d72_6f66;
/// The kernel runs no shorter frame.
pub(crate) const MIN_FRAME: usize = 14;

/// A longer frame is not run at tc: it is one page with room around it.
const MAX_FRAME_AT_TC: usize = 3500;

/// Where the flow programs see frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Xdp,
    Tc,
}

impl Hook {
    /// As `load`.
    pub(crate) fn load(self, settings: &Settings) -> FlowPlane {
        pin();
        match self {
            Self::Xdp => FlowPlane::load(settings).unwrap(),
            Self::Tc => FlowPlane::load_tc(settings).unwrap(),
        }
    }

    pub(crate) fn run(self, program: BorrowedFd<'_>, captured: &OwnedFrame) -> u32 {
        match self {
            Self::Xdp => run(program, captured),
            Self::Tc => run_at_tc(program, captured, 0),
        }
    }

    /// Frames that can be run here: of longer ones as much as fits.
    pub(crate) fn fit(self, frames: &mut Vec<OwnedFrame>) {
        frames.retain(|captured| captured.frame.len() >= MIN_FRAME);
        if self == Self::Tc {
            frames.retain(|captured| runs_at_tc(&captured.frame));
            frames.retain(|captured| captured.original_length <= 65_536);
            for captured in frames {
                captured.frame.truncate(MAX_FRAME_AT_TC);
            }
        }
    }
}

/// Newer kernels run no frame at tc that ends within its IP header.
fn runs_at_tc(frame: &[u8]) -> bool {
    let shortest = match frame[12..14] {
        [0x08, 0x00] => 34,
        [0x86, 0xdd] => 54,
        _ => MIN_FRAME,
    };
    frame.len() >= shortest
}

/// Loads the flow programs. The thread stays on one CPU from now on: each has a table of its own, and
/// these tests are about one of them.
pub(crate) fn load(settings: &Settings) -> FlowPlane {
    pin();
    FlowPlane::load(settings).unwrap()
}

/// Keeps the thread on one CPU.
pub(crate) fn pin() {
    sys::sched::pin(sys::sched::allowed_cpus().unwrap()[0]).unwrap();
}

/// Runs an XDP program on a frame with its time and wire length in front; the verdict.
pub(crate) fn run(program: BorrowedFd<'_>, captured: &OwnedFrame) -> u32 {
    run_for_frame(program, captured).0
}

/// The same, and the frame as the program has left it.
pub(crate) fn run_for_frame(program: BorrowedFd<'_>, captured: &OwnedFrame) -> (u32, Vec<u8>) {
    run_with(program, captured, 1, 0)
}

/// Runs an XDP program so often on this CPU, on frames that go where it sends them.
pub(crate) fn run_live(program: BorrowedFd<'_>, captured: &OwnedFrame, times: i32) {
    let live = libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES;
    run_with(program, captured, times, live);
}

fn run_with(
    program: BorrowedFd<'_>,
    captured: &OwnedFrame,
    repeat: i32,
    flags: u32,
) -> (u32, Vec<u8>) {
    let is_live = flags != 0;
    let mut data = Vec::with_capacity(captured.frame.len() + 24);
    data.extend_from_slice(&captured.timestamp_ns.to_ne_bytes());
    data.extend_from_slice(&captured.original_length.to_ne_bytes());
    data.extend_from_slice(&MAGIC.to_ne_bytes());
    // The queue, and padding.
    data.extend_from_slice(&[0; 8]);
    data.extend_from_slice(&captured.frame);
    let size = u32::try_from(data.len()).unwrap();
    let mut left = vec![0_u8; data.len()];
    // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let context: [u32; 6] = [METADATA, size, 0, 0, 0, 0];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: 24,
        data_in: data.as_ptr().cast(),
        data_size_in: size,
        data_out: if is_live {
            std::ptr::null_mut()
        } else {
            left.as_mut_ptr().cast()
        },
        data_size_out: if is_live { 0 } else { size },
        repeat,
        flags,
        batch_size: if is_live { 256 } else { 0 },
        ..Default::default()
    };
    // SAFETY: context, both frames and options outlive the call, and their sizes are theirs.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    assert_eq!(result, 0, "running {size} bytes");
    (options.retval, left.split_off(METADATA as usize))
}

/// Runs a tc program on a frame with its time and wire length beside it, and how many segments it
/// stands for; the verdict.
pub(crate) fn run_at_tc(program: BorrowedFd<'_>, captured: &OwnedFrame, segments: u32) -> u32 {
    run_at_tc_for_mark(program, captured, segments).0
}

/// The same, and the mark that the program has left.
pub(crate) fn run_at_tc_for_mark(
    program: BorrowedFd<'_>,
    captured: &OwnedFrame,
    segments: u32,
) -> (u32, u32) {
    let mut context = [0_u8; 192];
    let mut left = [0_u8; 192];
    let length = u32::try_from(captured.frame.len()).unwrap();
    let on_wire = length.max(captured.original_length);
    // struct __sk_buff: tstamp, wire_len and gso_segs.
    context[152..160].copy_from_slice(&captured.timestamp_ns.to_ne_bytes());
    context[160..164].copy_from_slice(&on_wire.to_ne_bytes());
    context[164..168].copy_from_slice(&segments.to_ne_bytes());
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: 192,
        ctx_out: left.as_mut_ptr().cast(),
        ctx_size_out: 192,
        data_in: captured.frame.as_ptr().cast(),
        data_size_in: length,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: both contexts, frame and options outlive the call, and their sizes are theirs.
    let result =
        unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    assert_eq!(result, 0, "running {} bytes", captured.frame.len());
    // After len and pkt_type.
    let mark = u32::from_ne_bytes(left[8..12].try_into().unwrap());
    (options.retval, mark)
}

/// An Ethernet frame, captured at this time.
pub(crate) fn captured(timestamp_ns: i64, frame: Vec<u8>, original_length: u32) -> OwnedFrame {
    OwnedFrame {
        timestamp_ns,
        original_length,
        link_type: pcap::ETHERNET,
        frame,
    }
}

/// Every frame of a capture, as Ethernet.
pub(crate) fn frames(path: &Path) -> Vec<OwnedFrame> {
    let reader = pcap::Reader::new(File::open(path).unwrap()).unwrap();
    reader.map(Result::unwrap).map(as_ethernet).collect()
}

/// Captures of the outside data.
pub(crate) fn captures() -> Option<Vec<PathBuf>> {
    let folder = sys::require::corpus()?.join("pcap");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| pcap::Reader::new(File::open(path).unwrap()).is_ok())
        .collect();
    paths.sort();
    Some(paths)
}

/// The frame with an Ethernet header in place of its own, where that is another: a device that runs
/// XDP has no other.
fn as_ethernet(mut captured: OwnedFrame) -> OwnedFrame {
    /// What precedes the IP header, and whether BSD, Linux or nobody made it.
    const OTHERS: [(u32, usize); 8] = [
        (0, 4),
        (12, 0),
        (14, 0),
        (101, 0),
        (108, 4),
        (113, 16),
        (228, 0),
        (276, 20),
    ];
    let Some((_, header)) = OTHERS.iter().find(|(kind, _)| *kind == captured.link_type) else {
        assert_eq!(captured.link_type, pcap::ETHERNET);
        return captured;
    };
    let network = captured.frame.split_off(*header);
    let ethertype: [u8; 2] = match network.first().map(|first| first >> 4) {
        Some(6) => [0x86, 0xdd],
        _ => [0x08, 0],
    };
    let mut frame = vec![0; 12];
    frame.extend_from_slice(&ethertype);
    frame.extend_from_slice(&network);
    captured.original_length -= u32::try_from(*header).unwrap();
    captured.original_length += 14;
    captured.link_type = pcap::ETHERNET;
    captured.frame = frame;
    captured
}

/// In an order that does not depend on when a flow was exported.
pub(crate) fn sort(flows: &mut [Flow]) {
    flows.sort_by_key(|flow| (flow.first_ns, flow.id(), flow.end.name(), flow.packets()));
}

/// The same rows of flow.v1; says which columns and flows differ.
pub(crate) fn assert_same_rows(what: &str, mut expected: Vec<Flow>, mut found: Vec<Flow>) {
    sort(&mut expected);
    sort(&mut found);
    for (expected, found) in expected.iter().zip(&found) {
        let mut expected = expected.clone();
        expected.contents = found.contents.clone();
        assert_eq!(expected, *found, "{what}");
    }
    assert_eq!(expected.len(), found.len(), "{what}: flows");
    for ((name, expected), (_, found)) in columns(&expected).into_iter().zip(columns(&found)) {
        assert_eq!(*expected, *found, "{what}: {name}");
    }
}

/// The columns of flow.v1 for these flows, but for those that need payload: the kernel has none.
pub(crate) fn columns(flows: &[Flow]) -> Vec<(String, ArrayRef)> {
    let schema = schema::find("flow.v1").unwrap();
    let groups = schema.flow_columns().unwrap();
    let batcher = Batcher::new(schema.name, groups, &Limits::default());
    let flows: Vec<Box<Flow>> = flows.iter().cloned().map(Box::new).collect();
    let batch = batcher.batch(&flows).unwrap();
    schema
        .columns()
        .iter()
        .zip(batch.columns())
        .filter(|(description, _)| !description.needs_payload)
        .map(|(description, column)| (description.name.to_owned(), Arc::clone(column)))
        .collect()
}

/// The flows that userspace makes of frames.
pub(crate) fn expected(options: &Options, frames: &[OwnedFrame]) -> Vec<Flow> {
    let mut reader = PacketReader::new(options);
    let mut table = Table::new(options.timers, options.limits);
    let mut flows = Vec::new();
    for captured in frames {
        let packet = reader.read(&captured.as_frame()).unwrap();
        table.add(&packet, &mut |flow| flows.push(*flow));
    }
    table.drain(&mut |flow| flows.push(*flow));
    flows
}

/// Whether a column says when packets came.
fn is_time(column: &str) -> bool {
    column.contains("_ns")
        || column.ends_with("_seen")
        || column.ends_with("_per_s")
        || column == "flow_id"
}

/// The same rows, whenever the packets were sent.
pub(crate) fn assert_same_but_times(mut expected: Vec<Flow>, mut found: Vec<Flow>) {
    for flows in [&mut expected, &mut found] {
        flows.sort_by_key(|flow| (flow.key.addresses, flow.key.ports, flow.key.protocol));
    }
    for ((name, expected), (_, found)) in columns(&expected).into_iter().zip(columns(&found)) {
        assert!(
            is_time(&name) || *expected == *found,
            "{name}: {expected:?}, not {found:?}"
        );
    }
}
