//! What was sent and what arrived, as one hash per video frame and audio packet.

use std::fs;
use std::path::Path;

/// Frames between two keyframes of every source.
pub(crate) const KEYFRAME_INTERVAL: usize = 10;

/// The hashes of decoded video frames and of encoded audio packets, in order.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) video: Vec<String>,
    pub(crate) audio: Vec<String>,
}

impl Recording {
    /// Reads the complete lines of a `framemd5` file: stream 0 is video, stream 1 audio.
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut recording = Self::default();
        for line in complete.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<_> = line.split(',').map(str::trim).collect();
            let hash = fields[5].to_owned();
            match fields[0] {
                "0" => recording.video.push(hash),
                _ => recording.audio.push(hash),
            }
        }
        recording
    }

    /// Checks a receiver that joined while the stream was running, as [`Self::assert_follows`] does, but without
    /// the frames up to the first whole keyframe: a decoder may show what it has of the picture it joined in.
    pub(crate) fn assert_joins(&mut self, source: &Self, what: &str) {
        let keyframes: Vec<&String> = source.video.iter().step_by(KEYFRAME_INTERVAL).collect();
        let whole = self
            .video
            .iter()
            .position(|frame| keyframes.contains(&frame));
        let whole = whole.unwrap_or_else(|| panic!("{what}: no keyframe of the source arrived"));
        assert!(
            whole <= KEYFRAME_INTERVAL,
            "{what}: {whole} frames before the first keyframe"
        );
        self.video.drain(..whole);
        self.assert_follows(source, what);
    }

    /// Checks that it is an unbroken part of a source that repeats, which begins at a keyframe;
    /// returns the number of its first frame.
    pub(crate) fn assert_follows(&self, source: &Self, what: &str) -> usize {
        let frames = self.video.len();
        let start = unbroken(&self.video, &source.video).unwrap_or_else(|frame| {
            panic!("{what}: video differs from frame {frame} of {frames} on")
        });
        assert_eq!(start % KEYFRAME_INTERVAL, 0, "{what}: begins at a keyframe");
        if let Err(packet) = unbroken(&self.audio, &source.audio) {
            panic!("{what}: audio differs from packet {packet} on");
        }
        start
    }
}

/// Where in the repeating source this begins, or how much of it agrees at best.
fn unbroken(got: &[String], source: &[String]) -> Result<usize, usize> {
    let agrees = |start: usize| {
        let sent = source.iter().cycle().skip(start);
        got.iter().zip(sent).take_while(|(a, b)| a == b).count()
    };
    let mut best = 0;
    for start in 0..source.len() {
        let count = agrees(start);
        if count == got.len() {
            return Ok(start);
        }
        best = best.max(count);
    }
    Err(best)
}
