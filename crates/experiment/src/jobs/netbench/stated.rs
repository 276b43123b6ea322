//! What an experiment file may say of netbench: a test, and how it is asked for.

use crate::jobs::sends_nothing;
use crate::plan::{Load, Measure};

const TEST: &str = "test";
const RATE: &str = "rate";
const SIZE: &str = "size";

/// Tests as `lowroad netbench run --test` calls them.
const TESTS: [&str; 6] = [
    "tcp_stream",
    "udp_rate",
    "tcp_rr",
    "udp_rr",
    "tcp_crr",
    "icmp",
];
/// Of a request and of a response, in bytes: what a datagram carries.
const LARGEST: i64 = 65_507;

/// The test of a load.
pub(super) fn test(load: &Load) -> Option<&str> {
    load.options.get(TEST)?.as_str()
}

/// Transactions a second, where they have times of their own.
pub(super) fn rate(load: &Load) -> Option<u64> {
    number(load, RATE)
}

/// Bytes of a request and of a response.
pub(super) fn size(load: &Load) -> Option<u64> {
    number(load, SIZE)
}

/// Whether a test is of transactions.
pub(super) fn transacts(test: &str) -> bool {
    !matches!(test, "tcp_stream" | "udp_rate")
}

fn number(load: &Load, option: &str) -> Option<u64> {
    let value = load.options.get(option)?.as_integer()?;
    value.try_into().ok()
}

/// Whether netbench can be offered the load, and measured so under it.
pub(crate) fn check_stated(load: &Load, measure: Measure) -> Result<(), String> {
    if !sends_nothing(load) || load.payload.is_some() {
        return Err("a test has options and a duration: links are arms".to_owned());
    }
    if !matches!(measure, Measure::Exchange | Measure::Cpu) {
        return Err("netbench is measured by exchange and cpu".to_owned());
    }
    let Some(test) = test(load).filter(|test| TESTS.contains(test)) else {
        return Err(format!(
            "options = {{ test = ... }} needs one of {}",
            TESTS.join(", ")
        ));
    };
    if measure == Measure::Cpu && matches!(test, "udp_rate" | "icmp") {
        return Err(format!("{test} has no steady load to account for"));
    }
    for (option, value) in &load.options {
        let range = match option.as_str() {
            TEST => continue,
            RATE if transacts(test) => 1..=1_000_000,
            SIZE if transacts(test) && test != "icmp" => 1..=LARGEST,
            _ => return Err(format!("{test} has no option {option}")),
        };
        if !value
            .as_integer()
            .is_some_and(|value| range.contains(&value))
        {
            return Err(format!(
                "{option} is from {} to {}",
                range.start(),
                range.end()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn what_a_test_has_not_is_refused() {
        let mut load = Plan::find("netbench-matrix").unwrap().loads[0].clone();
        let mut refused = |options: &str, measure| {
            load.options = toml::from_str(options).unwrap();
            check_stated(&load, measure).err()
        };
        assert_eq!(
            refused("test = 'tcp_rr'\nsize = 14", Measure::Exchange),
            None
        );
        assert_eq!(
            refused("test = 'icmp'\nrate = 1000", Measure::Exchange),
            None
        );
        for (options, measure, said) in [
            ("", Measure::Exchange, "needs one of"),
            ("test = 'tcp'", Measure::Exchange, "needs one of"),
            ("test = 'tcp_rr'", Measure::Delay, "exchange and cpu"),
            ("test = 'udp_rate'", Measure::Cpu, "no steady load"),
            (
                "test = 'tcp_stream'\nrate = 5",
                Measure::Exchange,
                "no option rate",
            ),
            ("test = 'tcp_rr'\nrate = 0", Measure::Exchange, "from 1 to"),
            (
                "test = 'udp_rr'\nsize = 70000",
                Measure::Exchange,
                "to 65507",
            ),
            (
                "test = 'tcp_rr'\nflows = 2",
                Measure::Exchange,
                "no option flows",
            ),
        ] {
            let why = refused(options, measure).unwrap();
            assert!(why.contains(said), "{options}: {why}");
        }
    }
}
