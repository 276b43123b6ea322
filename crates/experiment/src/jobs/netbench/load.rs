//! Loads of netbench, and which of them it can be offered: a test, and how it is run.

use std::collections::BTreeMap;

use netbench::{Spec, Test};
use serde::Deserialize;
use toml::Value;
use units::Span;

use super::path::Path;
use crate::bench::JobTrialSpec;
use crate::load::{JobLoad, JobMeasure, common_keys, option_words};

/// One trial of netbench.
pub(super) type TrialSpec<'a> = JobTrialSpec<'a, Load>;

const TEST: &str = "test";
const RATE: &str = "rate";
const SIZE: &str = "size";
const FLOWS: &str = "flows";

/// Transactions or datagrams a second: more than a socket carries.
const MAX_RATE: i64 = 10_000_000;

/// The measures of netbench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Round trips or goodput between two hosts.
    Exchange,
    /// Whole-machine CPU per transaction or gigabit.
    Cpu,
}

impl JobMeasure for Measure {
    fn name(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::Cpu => "cpu",
        }
    }

    fn windows(self) -> f64 {
        match self {
            // And a warm-up, and starting both ends.
            Self::Exchange => 1.5,
            Self::Cpu => 2.0,
        }
    }

    fn sees_all_cpus(self) -> bool {
        self == Self::Cpu
    }
}

/// A load of netbench: a test, and the path between the hosts. The kinds of links are arms.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Load {
    pub(super) measure: Option<Measure>,
    pub(super) duration: Span,
    /// The impairment of the direct link between the hosts.
    pub(super) path: Option<Path>,
    #[serde(default)]
    pub(super) options: BTreeMap<String, Value>,
}

impl Load {
    pub(super) fn test(&self) -> Option<Test> {
        self.options.get(TEST)?.as_str()?.parse().ok()
    }

    /// Transactions or datagrams a second, where they have times of their own.
    pub(super) fn rate(&self) -> Option<u64> {
        self.number(RATE)
    }

    /// Bytes of a request and of a response, of what a stream writes at once, or of a datagram.
    pub(super) fn size(&self) -> Option<u64> {
        self.number(SIZE)
    }

    /// Sockets at once.
    pub(super) fn flows(&self) -> u64 {
        self.number(FLOWS).unwrap_or(1)
    }

    fn number(&self, option: &str) -> Option<u64> {
        let value = self.options.get(option)?.as_integer()?;
        value.try_into().ok()
    }
}

impl JobLoad for Load {
    type Measure = Measure;

    common_keys!();

    fn label(&self) -> String {
        let measure = (self.measure == Some(Measure::Cpu)).then(|| "cpu".to_owned());
        let path = self.path.iter().flat_map(Path::words);
        let words = measure.into_iter().chain(option_words(&self.options));
        words.chain(path).collect::<Vec<_>>().join(" ")
    }
}

/// Whether netbench can be offered the load, and measured so under it.
pub(super) fn check(load: &Load, measure: Measure) -> Result<(), String> {
    let Some(test) = load.test() else {
        let tests = Test::ALL.map(Test::name).join(", ");
        return Err(format!("options = {{ test = ... }} needs one of {tests}"));
    };
    if measure == Measure::Cpu && !test.has_steady_load() {
        return Err(format!("{test} has no steady load to account for"));
    }
    check_options(load, test)?;
    load.path.as_ref().map_or(Ok(()), Path::check)?;
    if measure == Measure::Cpu && load.path.is_some() {
        return Err(
            "measure = \"cpu\" needs a path without capacity, delay or loss: the thread that makes these takes CPU, too"
                .to_owned(),
        );
    }
    if measure == Measure::Cpu && load.rate().is_some() {
        return Err(
            "measure = \"cpu\" goes with no rate: a sender that waits for its time polls the clock, and the path does not \
             cost that CPU"
                .to_owned(),
        );
    }
    if test.measures_loss() && load.rate().is_none() {
        return Err(format!(
            "{test} needs a rate: an overloaded receiver drops nearly everything; use udp_rate"
        ));
    }
    let spec = Spec::new(test, load.duration.0);
    let size = load.size().and_then(|size| u32::try_from(size).ok());
    let spec = Spec {
        rate: load.rate().map_or(spec.rate, |rate| Some(rate as f64)),
        request: size.unwrap_or(spec.request),
        response: size.unwrap_or(spec.response),
        ..spec
    };
    spec.check().map_err(|wrong| wrong.to_string())
}

fn check_options(load: &Load, test: Test) -> Result<(), String> {
    for (option, value) in &load.options {
        let range = match option.as_str() {
            TEST => continue,
            RATE if test.takes_rate() => 1..=MAX_RATE,
            SIZE => 1..=test.max_size().into(),
            FLOWS if test.max_flows() > 1 => 1..=test.max_flows().into(),
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
    use crate::catalog::loads_of;

    #[test]
    fn what_a_test_has_not_is_refused() {
        let mut load = loads_of::<Load>("netbench-matrix").remove(0);
        let mut refused = |options: &str, measure| {
            load.options = toml::from_str(options).unwrap();
            check(&load, measure).err()
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
            ("test = 'udp_rate'", Measure::Cpu, "no steady load"),
            (
                "test = 'udp_rate'\nrate = 5",
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
                "test = 'tcp_rr'\nflows = 1025",
                Measure::Exchange,
                "flows is from 1 to 1024",
            ),
            ("test = 'udp_stream'", Measure::Exchange, "needs a rate"),
            (
                "test = 'tcp_rr'\nrate = 1000",
                Measure::Cpu,
                "goes with no rate",
            ),
            (
                "test = 'udp_rr'\nrate = 1000\nsize = 1",
                Measure::Exchange,
                "4 B or more",
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
        let why = check(&load, Measure::Exchange).unwrap_err();
        assert!(why.contains("10ms"), "{why}");
    }

    #[test]
    fn path_is_part_of_the_label_and_checked() {
        let mut load = loads_of::<Load>("netbench-matrix").remove(0);
        load.options = toml::from_str("test = 'tcp_rr'").unwrap();
        load.path = Some(toml::from_str("delay = '20ms'").unwrap());
        assert_eq!(load.label(), "test=tcp_rr delay=20ms");
        assert_eq!(check(&load, Measure::Exchange), Ok(()));
        let error = check(&load, Measure::Cpu).unwrap_err();
        assert!(error.contains("takes CPU"), "{error}");
        load.path = Some(Path::default());
        let error = check(&load, Measure::Exchange).unwrap_err();
        assert!(error.contains("path needs"), "{error}");
    }

    #[test]
    fn measures_of_other_jobs_are_refused() {
        let refused = toml::from_str::<Load>("measure = 'delay'\nduration = '1s'").unwrap_err();
        let said = refused.message();
        assert!(said.contains("`exchange` or `cpu`"), "{said}");
    }
}
