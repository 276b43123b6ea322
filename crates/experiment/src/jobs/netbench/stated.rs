//! What an experiment file may say of netbench: a test, and how it is asked for.

use netbench::{LARGEST_DATAGRAM, LARGEST_MESSAGE, MOST_FLOWS, Spec, Test};

use crate::jobs::sends_nothing;
use crate::plan::{Load, Measure};

const TEST: &str = "test";
const RATE: &str = "rate";
const SIZE: &str = "size";
const FLOWS: &str = "flows";

/// Transactions or datagrams a second: more than a socket carries.
const MOST_RATE: i64 = 10_000_000;

/// The test of a load.
pub(super) fn test(load: &Load) -> Option<Test> {
    load.options.get(TEST)?.as_str()?.parse().ok()
}

/// Transactions or datagrams a second, where they have times of their own.
pub(super) fn rate(load: &Load) -> Option<u64> {
    number(load, RATE)
}

/// Bytes of a request and of a response, of what a stream writes at once, or of a datagram.
pub(super) fn size(load: &Load) -> Option<u64> {
    number(load, SIZE)
}

/// Sockets at once.
pub(super) fn flows(load: &Load) -> u64 {
    number(load, FLOWS).unwrap_or(1)
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
    let Some(test) = test(load) else {
        let tests = Test::ALL.map(Test::name).join(", ");
        return Err(format!("options = {{ test = ... }} needs one of {tests}"));
    };
    if measure == Measure::Cpu && matches!(test, Test::UdpRate | Test::Icmp) {
        return Err(format!("{test} has no steady load to account for"));
    }
    check_options(load, test)?;
    if measure == Measure::Cpu && rate(load).is_some() {
        return Err(
            "measure = \"cpu\" goes with no rate: who waits for a moment to send looks at the clock, and that is CPU that the \
             path did not cost"
                .to_owned(),
        );
    }
    if test == Test::UdpStream && rate(load).is_none() {
        return Err(
            "udp_stream needs a rate: who is sent more than it takes in loses nearly all, which udp_rate looks for"
                .to_owned(),
        );
    }
    Spec::new(test, load.duration.0)
        .check()
        .map_err(|wrong| wrong.to_string())
}

fn check_options(load: &Load, test: Test) -> Result<(), String> {
    let largest = match test.datagrams() {
        true => LARGEST_DATAGRAM,
        false => LARGEST_MESSAGE,
    };
    for (option, value) in &load.options {
        let range = match option.as_str() {
            TEST => continue,
            RATE if !matches!(test, Test::TcpStream | Test::UdpRate) => 1..=MOST_RATE,
            SIZE => 1..=largest.into(),
            FLOWS if test != Test::Icmp => 1..=MOST_FLOWS.into(),
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
        for options in [
            "test = 'tcp_rr'\nsize = 70000\nflows = 256",
            "test = 'icmp'\nrate = 1000\nsize = 1400",
            "test = 'tcp_stream'\nsize = 16777216\nflows = 4",
            "test = 'udp_rate'\nsize = 64",
            "test = 'udp_stream'\nrate = 10000\nsize = 65507",
        ] {
            assert_eq!(refused(options, Measure::Exchange), None, "{options}");
        }
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
                "test = 'tcp_stream'\nsize = 16777217",
                Measure::Exchange,
                "to 16777216",
            ),
            (
                "test = 'icmp'\nflows = 2",
                Measure::Exchange,
                "no option flows",
            ),
            (
                "test = 'tcp_rr'\nflows = 257",
                Measure::Exchange,
                "flows is from 1 to 256",
            ),
            ("test = 'udp_stream'", Measure::Exchange, "needs a rate"),
            (
                "test = 'tcp_rr'\nrate = 1000",
                Measure::Cpu,
                "goes with no rate",
            ),
            (
                "test = 'tcp_rr'\nmessage = 5",
                Measure::Exchange,
                "no option message",
            ),
        ] {
            let why = refused(options, measure).unwrap();
            assert!(why.contains(said), "{options}: {why}");
        }
        load.options = toml::from_str("test = 'tcp_rr'").unwrap();
        load.duration = "9ms".parse().unwrap();
        let why = check_stated(&load, Measure::Exchange).unwrap_err();
        assert!(why.contains("10ms"), "{why}");
    }
}
