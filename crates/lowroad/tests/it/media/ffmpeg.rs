//! ffmpeg as encoder, sender, receiver and judge.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testbed::Child;

use super::frames::{KEYFRAME_INTERVAL, Recording};
use super::stage::{AUDIO, Stage, TRANSPORT_STREAM, VIDEO};

/// Receivers decode the video and keep the audio as it comes: what a decoder makes of a packet
/// depends on those before it.
const HASH_OPTIONS: [&str; 8] = [
    "-map",
    "0:v",
    "-map",
    "0:a",
    "-c:a",
    "copy",
    "-fps_mode",
    "passthrough",
];

fn ffmpeg() -> Command {
    let mut command = Command::new("ffmpeg");
    command
        .args(["-hide_banner", "-nostdin", "-y", "-loglevel", "error"])
        .args(["-threads", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn done(command: &mut Command) {
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Two seconds of H.264 and Opus, with parameter sets before each keyframe.
pub(crate) fn encode(folder: &Path) -> PathBuf {
    let clip = folder.join("clip.ts");
    done(
        ffmpeg()
            .args([
                "-f",
                "lavfi",
                "-i",
                "testsrc2=size=320x180:rate=25:duration=2",
            ])
            .args([
                "-f",
                "lavfi",
                "-i",
                "anoisesrc=seed=1:sample_rate=48000:duration=2",
            ])
            .args([
                "-c:v",
                "libx264",
                "-preset",
                "ultrafast",
                "-tune",
                "zerolatency",
            ])
            .args(["-pix_fmt", "yuv420p", "-g", &KEYFRAME_INTERVAL.to_string()])
            .args(["-c:a", "libopus", "-b:a", "64k", "-f", "mpegts"])
            .arg(&clip),
    );
    clip
}

/// The hashes a receiver of this file must come to.
pub(crate) fn hash(file: &Path) -> Recording {
    let hashes = file.with_extension("md5");
    done(
        ffmpeg()
            .arg("-i")
            .arg(file)
            .args(["-map", "0:v", "-map", "0:a?", "-c:a", "copy"])
            .args(["-fps_mode", "passthrough", "-f", "framemd5"])
            .arg(&hashes),
    );
    Recording::read(&hashes)
}

/// Sends the file again and again, at its own pace: as RTP and as a transport stream.
pub(crate) fn send(stage: &Stage, clip: &Path) -> Vec<Child> {
    let mut rtp = at_its_pace(clip);
    rtp.args([
        "-map",
        "0:v",
        "-c",
        "copy",
        "-f",
        "rtp",
        "-payload_type",
        "96",
    ])
    .arg(format!("rtp://{}?pkt_size=1200", stage.ingest(VIDEO)))
    .args([
        "-map",
        "0:a",
        "-c",
        "copy",
        "-f",
        "rtp",
        "-payload_type",
        "97",
    ])
    .arg(format!("rtp://{}", stage.ingest(AUDIO)));
    let mut transport_stream = at_its_pace(clip);
    let ingest = stage.ingest(TRANSPORT_STREAM);
    transport_stream
        .args(["-map", "0", "-c", "copy", "-f", "mpegts"])
        .arg(format!("udp://{ingest}?pkt_size=1316"));
    let sender = stage.bed.host("sender").unwrap();
    [rtp, transport_stream]
        .map(|command| sender.spawn(command).unwrap())
        .into()
}

fn at_its_pace(clip: &Path) -> Command {
    let mut command = ffmpeg();
    command.args(["-re", "-stream_loop", "-1", "-i"]).arg(clip);
    command
}

/// Starts a receiver of RTP video and audio; returns it and the file it writes hashes to.
pub(crate) fn receive_rtp(stage: &Stage, name: &str) -> (Child, PathBuf) {
    let folder = stage.folder(&format!("{name}-rtp"));
    let video = stage.destination(VIDEO, name);
    let audio = stage.destination(AUDIO, name);
    let session = folder.join("session.sdp");
    let (address, video, audio) = (video.ip(), video.port(), audio.port());
    let description = format!(
        "v=0\no=- 0 0 IN IP4 {address}\ns=-\nc=IN IP4 {address}\nt=0 0\n\
         m=video {video} RTP/AVP 96\na=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=1\n\
         m=audio {audio} RTP/AVP 97\na=rtpmap:97 opus/48000/2\n"
    );
    fs::write(&session, description).unwrap();
    let mut command = ffmpeg();
    command
        .args(["-protocol_whitelist", "file,udp,rtp", "-i"])
        .arg(&session);
    record(stage, command, &folder, &[video, audio])
}

/// Starts a receiver of the transport stream; returns it and the file it writes hashes to.
pub(crate) fn receive_transport_stream(stage: &Stage, name: &str) -> (Child, PathBuf) {
    let folder = stage.folder(&format!("{name}-ts"));
    let from = stage.destination(TRANSPORT_STREAM, name);
    let mut command = ffmpeg();
    command.args(["-analyzeduration", "500000", "-i", &format!("udp://{from}")]);
    record(stage, command, &folder, &[from.port()])
}

fn record(stage: &Stage, mut command: Command, folder: &Path, ports: &[u16]) -> (Child, PathBuf) {
    let hashes = folder.join("frames.md5");
    command
        .args(HASH_OPTIONS)
        .args(["-flush_packets", "1", "-f", "framemd5"])
        .arg(&hashes);
    (stage.receive(command, ports), hashes)
}
