//! Help texts that list tests or their defaults.

use netbench::{ETHERNET_PAYLOAD, Test};
use units::Pps;

/// Of `--test`: every test.
pub(super) fn tests() -> String {
    let names = Test::ALL.map(|test| match test.needs_server() {
        true => test.name().to_owned(),
        false => format!("{test}, which needs no server"),
    });
    match names.split_last() {
        Some((last, others)) => format!("Run these tests: {} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Of `--message`: the default sizes.
pub(super) fn message() -> String {
    let mut defaults = String::new();
    for test in Test::ALL {
        let size = test.default_message();
        if let Some(size) = size.filter(|size| *size != ETHERNET_PAYLOAD) {
            defaults += &format!("{} for {test}, ", bytes(size));
        }
    }
    format!(
        "Write streams in pieces, or send datagrams, of this size; each value makes a test [default: {defaults}what \
         fills the path MTU for others]"
    )
}

/// Of `--rate`: the default rates.
pub(super) fn rate() -> String {
    let mut defaults = String::new();
    for test in Test::ALL {
        if let Some(rate) = test.default_rate() {
            defaults += &format!("; {test} {}", Pps(rate));
        }
    }
    format!(
        "Send messages at fixed times (open loop), at this rate of messages (0.5pps, 50kpps) or of a stream's bits \
         (10mbps) [default: send when the previous one is done (closed loop){defaults}]"
    )
}

fn bytes(size: u32) -> String {
    match size % 1024 {
        0 => format!("{}KiB", size / 1024),
        _ => format!("{size}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_lists_tests_and_defaults() {
        let tests = tests();
        let names = Test::ALL.map(Test::name);
        assert!(names.iter().all(|name| tests.contains(name)), "{tests}");
        assert!(
            tests.starts_with("Run these tests: tcp_stream, udp_stream, tcp_rr"),
            "{tests}"
        );
        assert!(tests.contains("icmp, which needs no server"), "{tests}");
        let message = message();
        assert!(
            message.contains("[default: 128KiB for tcp_stream, "),
            "{message}"
        );
        assert!(message.ends_with("the path MTU for others]"), "{message}");
        let rate = rate();
        assert!(rate.contains("(closed loop); icmp 100pps"), "{rate}");
    }
}
