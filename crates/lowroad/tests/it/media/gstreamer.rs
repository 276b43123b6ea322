//! GStreamer as encoder, sender and receiver.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use testbed::Child;

use super::ffmpeg;
use super::frames::{KEYFRAME_INTERVAL, Recording};
use super::stage::{AUDIO, Stage, TRANSPORT_STREAM, VIDEO};

/// `gst-launch-1.0` running a pipeline, written as on a command line.
fn pipeline(text: &str) -> Command {
    let mut command = Command::new("gst-launch-1.0");
    command
        .args(["--quiet", "--eos-on-shutdown"])
        .args(text.split_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Sends RTP video and audio and a transport stream, and keeps in `folder` what was sent.
pub(crate) fn send(stage: &Stage, folder: &Path) -> Child {
    let (video, audio) = (stage.ingest(VIDEO), stage.ingest(AUDIO));
    let transport_stream = stage.ingest(TRANSPORT_STREAM);
    let sent = folder.join("sent.ts");
    let to = |ingest: std::net::SocketAddr| {
        format!("udpsink host={} port={}", ingest.ip(), ingest.port())
    };
    let text = format!(
        "mpegtsmux name=mux alignment=7 ! tee name=ts \
         ts. ! queue ! {} \
         ts. ! queue ! filesink location={} \
         videotestsrc is-live=true pattern=ball ! video/x-raw,width=320,height=180,framerate=25/1 \
         ! x264enc tune=zerolatency speed-preset=ultrafast key-int-max={KEYFRAME_INTERVAL} \
         option-string=scenecut=0 ! h264parse config-interval=-1 ! tee name=video \
         video. ! queue ! rtph264pay pt=96 mtu=1200 ! {} \
         video. ! queue ! mux. \
         audiotestsrc is-live=true wave=pink-noise ! audio/x-raw,rate=48000,channels=2 \
         ! opusenc ! tee name=audio \
         audio. ! queue ! rtpopuspay pt=97 ! {} \
         audio. ! queue ! opusparse ! mux.",
        to(transport_stream),
        sent.display(),
        to(video),
        to(audio),
    );
    let sender = stage.bed.host("sender").unwrap();
    sender.spawn(pipeline(&text)).unwrap()
}

/// Ends a pipeline so that its files are complete.
pub(crate) fn finish(child: &mut Child) {
    child.signal(Signal::SIGINT).unwrap();
    super::until("GStreamer", || child.try_wait().unwrap().is_some());
}

/// What was sent.
pub(crate) fn source(folder: &Path) -> Recording {
    ffmpeg::hash(&folder.join("sent.ts"))
}

/// Receives RTP video, and the video of the transport stream, as elementary streams in files.
pub(crate) struct Receiver {
    child: Child,
    files: [PathBuf; 2],
}

impl Receiver {
    pub(crate) fn start(stage: &Stage) -> Self {
        let folder = stage.folder("gstreamer");
        let files = ["rtp.h264", "ts.h264"].map(|name| folder.join(name));
        let rtp = stage.destination(VIDEO, "stays");
        let transport_stream = stage.destination(TRANSPORT_STREAM, "stays");
        // Not `async`: a file would wait for the other's first frame, and its socket overflow.
        let keep = "h264parse ! video/x-h264,stream-format=byte-stream,alignment=au \
                    ! filesink buffer-mode=unbuffered sync=false async=false location=";
        // On a busy machine a packet may come later than the usual 200 ms, and would count as lost.
        let text = format!(
            "udpsrc address={} port={} caps=application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=96 \
             ! rtpjitterbuffer latency=2000 ! rtph264depay ! {keep}{} \
             udpsrc address={} port={} ! tsdemux ! {keep}{}",
            rtp.ip(),
            rtp.port(),
            files[0].display(),
            transport_stream.ip(),
            transport_stream.port(),
            files[1].display(),
        );
        let ports = [rtp.port(), transport_stream.port()];
        Self {
            child: stage.receive(pipeline(&text), &ports),
            files,
        }
    }

    /// Whether each file holds so many frames.
    pub(crate) fn has(&self, frames: usize) -> bool {
        self.files.iter().all(|file| {
            std::fs::metadata(file).is_ok_and(|found| found.len() > 0)
                && ffmpeg::hash(file).video.len() >= frames
        })
    }

    pub(crate) fn finish(&mut self) {
        finish(&mut self.child);
    }

    /// Without the last frame: the end comes when it may have arrived in part.
    pub(crate) fn recordings(&self) -> impl Iterator<Item = Recording> {
        self.files.iter().map(|file| {
            let mut recording = ffmpeg::hash(file);
            recording.video.pop();
            recording
        })
    }
}
