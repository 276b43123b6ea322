//! Real media through the real relay: unmodified senders and receivers, and every decoded frame
//! compared with the source's.

mod ffmpeg;
mod frames;
mod gstreamer;
mod stage;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sys::require::{self, Class};

use frames::Recording;
use stage::{Set, Stage};

/// Frames a receiver that stays must get: more than the source has before it repeats.
const STAYS: usize = 60;
/// Frames a receiver must get before it leaves, and after it has come back.
const RETURNS: usize = 15;
/// A stream that has not arrived by then is broken.
const DEADLINE: Duration = Duration::from_secs(30);

#[test]
fn ffmpeg_streams_arrive_frame_for_frame_through_every_datapath() {
    if !require::root() || !installed("ffmpeg", Class::Core) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let clip = ffmpeg::encode(folder.path());
    let source = ffmpeg::hash(&clip);
    for datapath in runnable() {
        let stage = Stage::set(&datapath);
        let mut stays = Set::start(&stage, "stays");
        let mut leaves = Set::start(&stage, "returns");
        let _senders = ffmpeg::send(&stage, &clip);

        until(&datapath, || leaves.has(RETURNS));
        leaves.stop();
        for recording in leaves.recordings() {
            recording.assert_follows(&source, &format!("{datapath}: before leaving"));
        }
        let mut back = Set::start(&stage, "returns");
        until(&datapath, || back.has(RETURNS) && stays.has(STAYS));
        back.stop();
        stays.stop();
        for mut recording in back.recordings() {
            recording.assert_joins(&source, &format!("{datapath}: after coming back"));
        }
        for recording in stays.recordings() {
            let start = recording.assert_follows(&source, &format!("{datapath}: staying"));
            assert_eq!(start, 0, "{datapath}: the first frame was lost");
        }
    }
}

#[test]
#[ignore = "needs GStreamer"]
fn gstreamer_streams_arrive_frame_for_frame_through_every_datapath() {
    if !require::root() {
        return;
    }
    if !installed("ffmpeg", Class::OptIn) || !installed("gst-launch-1.0", Class::OptIn) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let clip = ffmpeg::encode(folder.path());
    let source = ffmpeg::hash(&clip);
    for datapath in runnable() {
        from_gstreamer(&datapath);
        to_gstreamer(&datapath, &clip, &source);
    }
}

/// GStreamer encodes and sends, ffmpeg receives.
fn from_gstreamer(datapath: &str) {
    let stage = Stage::set(datapath);
    let mut stays = Set::start(&stage, "stays");
    let sent = stage.folder("sent");
    let mut sender = gstreamer::send(&stage, &sent);
    until(datapath, || stays.has(STAYS));
    stays.stop();
    gstreamer::finish(&mut sender);
    let source = gstreamer::source(&sent);
    for recording in stays.recordings() {
        let start = recording.assert_follows(&source, &format!("{datapath}: from GStreamer"));
        assert_eq!(start, 0, "{datapath}: the first frame was lost");
    }
}

/// ffmpeg sends, GStreamer receives and writes the elementary streams.
fn to_gstreamer(datapath: &str, clip: &Path, source: &Recording) {
    let stage = Stage::set(datapath);
    let mut receiver = gstreamer::Receiver::start(&stage);
    let _senders = ffmpeg::send(&stage, clip);
    until(datapath, || receiver.has(STAYS));
    receiver.finish();
    for recording in receiver.recordings() {
        let start = recording.assert_follows(source, &format!("{datapath}: to GStreamer"));
        assert_eq!(start, 0, "{datapath}: the first frame was lost");
    }
}

/// The datapaths this machine has; reports those it has not.
fn runnable() -> Vec<String> {
    let mut runnable = Vec::new();
    for datapath in relay::datapaths() {
        match datapath.check() {
            Ok(()) => runnable.push(datapath.name().to_owned()),
            Err(missing) => require::skip(Class::Core, &format!("{}: {missing}", datapath.name())),
        }
    }
    runnable
}

fn installed(program: &str, class: Class) -> bool {
    let found = Command::new(program)
        .arg("-version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !found {
        require::skip(class, &format!("{program} is not installed"));
    }
    found
}

/// Polls until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: the streams stopped");
        std::thread::sleep(Duration::from_millis(20));
    }
}
