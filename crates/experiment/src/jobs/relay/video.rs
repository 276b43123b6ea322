//! A video trial: a real stream through the arm to an unmodified receiver, and every decoded frame
//! compared with the source's.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use testbed::Child;

use super::losses::Losses;
use super::media::{self, FRAMES_PER_SECOND, Video};
use super::stage::Stage;
use super::{RelayBench, delay};
use crate::jobs::relay::load::{LoadSource, TrialSpec};
use crate::noise::Watch;
use crate::outcome::Outcome;

/// Sent after the frames that count: a receiver holds its newest frames until others follow.
const TAIL: Duration = Duration::from_millis(500);
/// A receiver that is not ready by then is broken.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// Silence after which the rest counts as lost.
const QUIET: Duration = Duration::from_millis(500);

pub(super) fn trial(bench: &RelayBench, spec: &TrialSpec<'_>) -> Result<(Stage, Outcome)> {
    let stage = Stage::set(&bench.layout(spec))?;
    let duration = spec.load.duration.0;
    let source = bench.video.frames()?;
    let frames = duration.as_millis() * u128::from(FRAMES_PER_SECOND) / 1000;
    let due = usize::try_from(frames)?;
    ensure!(due <= source.len(), "the video is shorter than the load");
    let receiver = Receiver::start(&stage, &spec.load.from)?;
    let probe = delay::probe(&stage, delay::key(&spec.load.from), false, 1 << 14)?;
    let losses = Losses::watch(&stage)?;
    let mut own = stage.relay_pids();
    own.push(receiver.child.id());
    let watch = Watch::start(&bench.foreign, &own)?;
    let mut video = Video::start(
        &stage,
        bench.video.file()?,
        &spec.load.from,
        duration + TAIL,
    )?;
    own.push(video.pid());
    video.finish()?;
    let mut outcome = Outcome::default();
    watch.end(&own, &mut outcome)?;
    let sent = probe.report(None)?.sent.iter().sum::<u64>();
    let report = delay::finish(&probe, sent * spec.load.subscribers as u64)?;
    let got = media::decode(&receiver.finish()?)?;
    delay::note_delay(&mut outcome, &report);
    losses.note(&mut outcome)?;
    outcome.counts.insert("frames_due".to_owned(), due as u64);
    outcome
        .counts
        .insert("frames_received".to_owned(), got.len() as u64);
    let differing = differing(&source[..due], &got);
    outcome
        .values
        .insert("frames_differing".to_owned(), differing as f64);
    Ok((stage, outcome))
}

/// How many of the frames due did not arrive as they were sent, in their order.
///
/// The source's first frame is a keyframe, and the receiver listens before it is sent.
fn differing<T: PartialEq>(due: &[T], got: &[T]) -> usize {
    let mut rest = got;
    let mut missing = 0;
    for frame in due {
        match rest.iter().position(|arrived| arrived == frame) {
            Some(index) => rest = &rest[index + 1..],
            None => missing += 1,
        }
    }
    missing
}

/// ffmpeg writing the video's elementary stream to a file, undecoded: decoding it during the
/// trial would compete with what is measured.
struct Receiver {
    child: Child,
    file: PathBuf,
}

impl Receiver {
    /// Starts it at the first subscriber's address, and waits until it has bound its port.
    fn start(stage: &Stage, from: &LoadSource) -> Result<Self> {
        let address = stage.subscribers[0];
        let folder = stage.folder.path();
        let file = folder.join("received.h264");
        let log = folder.join("receiver.log");
        let mut command = Command::new("ffmpeg");
        command.args(["-hide_banner", "-nostdin", "-loglevel", "warning"]);
        if *from == LoadSource::Rtp {
            let session = folder.join("session.sdp");
            let (ip, port) = (address.ip(), address.port());
            let description = format!(
                "v=0\no=- 0 0 IN IP4 {ip}\ns=-\nc=IN IP4 {ip}\nt=0 0\n\
                 m=video {port} RTP/AVP 96\na=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=1\n"
            );
            fs::write(&session, description)?;
            command
                .args(["-protocol_whitelist", "file,udp,rtp", "-i"])
                .arg(&session);
        } else {
            command.args(["-analyzeduration", "500000", "-i"]);
            command.arg(format!("udp://{address}"));
        }
        command
            .args(["-map", "0:v", "-c", "copy", "-flush_packets", "1"])
            .args(["-f", "h264"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?);
        let mut child = stage.bed.host("receiver")?.spawn(command)?;
        let table = format!("/proc/{}/net/udp", child.id());
        let entry = format!(":{:04X} ", address.port());
        let deadline = Instant::now() + READY_WITHIN;
        while !fs::read_to_string(&table).is_ok_and(|bound| bound.contains(&entry)) {
            if child.try_wait()?.is_some() || Instant::now() > deadline {
                let said = fs::read_to_string(&log).unwrap_or_default();
                bail!("the receiver did not start: {}", said.trim());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { child, file })
    }

    /// Ends it when nothing more comes, and returns what it wrote.
    fn finish(mut self) -> Result<PathBuf> {
        let length = || fs::metadata(&self.file).map_or(0, |found| found.len());
        let (mut seen, mut since) = (length(), Instant::now());
        while since.elapsed() < QUIET {
            thread::sleep(Duration::from_millis(10));
            let now = length();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        self.child.stop(Duration::from_secs(5))?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_that_is_lost_or_spoilt_counts_once() {
        assert_eq!(differing(&[1, 2, 3, 4], &[1, 2, 3, 4]), 0);
        assert_eq!(differing(&[1, 2, 3, 4], &[1, 2, 3, 4, 5]), 0, "the tail");
        assert_eq!(differing(&[1, 2, 3, 4], &[1, 2, 4]), 1, "lost");
        assert_eq!(differing(&[1, 2, 3, 4], &[1, 9, 3, 4]), 1, "spoilt");
        assert_eq!(differing(&[1, 2, 3, 4], &[1, 3, 2, 4]), 1, "swapped");
        assert_eq!(differing(&[1, 2, 3, 4], &[]), 4);
    }
}
