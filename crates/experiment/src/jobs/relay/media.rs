//! A real stream as a load: ffmpeg sends H.264 video as RTP or MPEG-TS, at the stream's own pace.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use datapath::Missing;
use testbed::Child;

use super::stage::Stage;
use crate::jobs::relay::load::LoadSource;

/// The synchronisation source of the stream.
pub(super) const SSRC: u32 = 0x6c6f_7772;
/// Seconds of video in the file; trials send a part of it.
const FILE_SECONDS: u32 = 20;

/// Its frame rate.
pub(super) const FRAMES_PER_SECOND: u32 = 50;

pub(super) fn check() -> Result<(), Missing> {
    let found = Command::new("ffmpeg")
        .arg("-version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Missing::new(
            "ffmpeg is not installed",
            "apt-get install ffmpeg",
        )),
    }
}

/// ffmpeg sending the video from the stage's sender.
#[derive(Debug)]
pub(super) struct Video {
    child: Child,
    log: PathBuf,
}

impl Video {
    /// Starts sending `duration` of the video in `file` to the stage's ingest.
    pub(super) fn start(
        stage: &Stage,
        file: &Path,
        from: &LoadSource,
        duration: Duration,
    ) -> Result<Self> {
        let log = stage.folder.path().join("ffmpeg.log");
        let mut command = Command::new("ffmpeg");
        command
            .args(["-hide_banner", "-nostdin", "-loglevel", "warning"])
            .args(["-re", "-i"])
            .arg(file)
            .args(["-t", &duration.as_secs_f64().to_string()])
            .args(["-c", "copy", "-an"])
            // A receiver needs the parameter sets with each keyframe.
            .args(["-bsf:v", "h264_mp4toannexb"]);
        if *from == LoadSource::Rtp {
            command
                .args(["-f", "rtp", "-payload_type", "96"])
                .args(["-ssrc", &SSRC.to_string()])
                .arg(format!("rtp://{}?pkt_size=1200", stage.ingest));
        } else {
            command
                .args(["-f", "mpegts"])
                .arg(format!("udp://{}?pkt_size=1316", stage.ingest));
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log)?);
        let child = stage.bed.host("sender")?.spawn(command)?;
        Ok(Self { child, log })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until all is sent.
    pub(super) fn finish(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        if !status.success() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            bail!("ffmpeg: {}", said.lines().last().unwrap_or("failed"));
        }
        Ok(())
    }
}

/// The video, made once a run: encoding during a trial would compete with what is measured.
#[derive(Debug, Default)]
pub(super) struct Source {
    file: OnceCell<(tempfile::TempDir, PathBuf)>,
    frames: OnceCell<Vec<String>>,
}

impl Source {
    /// The file that holds it, for as long as this lives.
    pub(super) fn file(&self) -> Result<&Path> {
        let (_, path) = once(&self.file, make)?;
        Ok(path)
    }

    /// A hash of each of its frames, decoded.
    pub(super) fn frames(&self) -> Result<&[String]> {
        once(&self.frames, || decode(self.file()?)).map(Vec::as_slice)
    }
}

fn once<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(made) = cell.get() {
        return Ok(made);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

fn make() -> Result<(tempfile::TempDir, PathBuf)> {
    let folder = testbed::folder()?;
    let path = folder.path().join("video.mp4");
    let source = format!("testsrc2=size=1280x720:rate={FRAMES_PER_SECOND}:duration={FILE_SECONDS}");
    let output = Command::new("ffmpeg")
        .args(["-hide_banner", "-nostdin", "-loglevel", "error"])
        .args(["-f", "lavfi", "-i", &source])
        .args([
            "-c:v",
            "libx264",
            "-preset",
            "ultrafast",
            "-tune",
            "zerolatency",
        ])
        .args(["-g", "50", "-b:v", "6M", "-minrate", "6M", "-maxrate", "6M"])
        // No filler (nal-hrd=cbr): datagrams of nothing else are equal, and not told apart.
        .args(["-bufsize", "600k"])
        .arg(&path)
        .output()
        .context("ffmpeg")?;
    if !output.status.success() {
        bail!(
            "ffmpeg made no video: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok((folder, path))
}

/// A hash of each frame that decoding the file gives; none of a file that holds no frame.
pub(super) fn decode(file: &Path) -> Result<Vec<String>> {
    if std::fs::metadata(file).map_or(0, |found| found.len()) == 0 {
        return Ok(Vec::new());
    }
    let output = Command::new("ffmpeg")
        .args(["-hide_banner", "-nostdin", "-loglevel", "error", "-i"])
        .arg(file)
        .args(["-map", "0:v", "-fps_mode", "passthrough"])
        .args(["-f", "framemd5", "-"])
        .output()
        .context("ffmpeg")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let frames = text.lines().filter(|line| !line.starts_with('#'));
    Ok(frames
        .filter_map(|line| Some(line.rsplit(',').next()?.trim().to_owned()))
        .collect())
}
