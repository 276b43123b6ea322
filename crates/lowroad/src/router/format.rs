//! Numbers as tables print them.

/// Three digits or more.
pub(super) fn short(value: f64) -> String {
    let digits = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.digits$}")
}

pub(super) fn mib(bytes: usize) -> String {
    format!("{:.1} MiB", to_mib(bytes))
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 bytes")]
pub(super) fn to_mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
