//! Loads: what each job's are, and one for all jobs that plans and runs deal with.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;

use control::config::{Document, Error, Spanned};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use units::{Pps, Span};

/// The measures of a job.
pub(crate) trait JobMeasure:
    Copy + Debug + PartialEq + DeserializeOwned + Send + Sync + 'static
{
    /// Its name in experiment files and records.
    fn name(self) -> &'static str;

    /// How many windows of the load's duration a trial takes, for estimates of time.
    fn windows(self) -> f64;

    /// Whether it needs to see the CPUs of both ends, which an end on another machine hides.
    fn sees_all_cpus(self) -> bool {
        false
    }
}

/// An offered load of a job, as a `[[load]]` of an experiment file states it.
pub(crate) trait JobLoad: Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    type Measure: JobMeasure;

    /// The load's name in every record: `200B 10kpps N=1`.
    fn label(&self) -> String;

    fn duration(&self) -> Span;

    fn set_duration(&mut self, duration: Span);

    /// The measure under this load, if it differs from the experiment's.
    fn measure(&self) -> Option<Self::Measure>;

    /// What a bench sets up once for all trials under this load, for estimates of time.
    fn shared_set_up(&self, _measure: Self::Measure) -> Option<SharedSetUp> {
        None
    }
}

/// What a bench sets up once for all trials of a build of `lowroad`.
#[derive(Clone, Debug)]
pub(crate) struct SharedSetUp {
    /// Loads with the same key share it.
    pub(crate) key: String,
    pub(crate) seconds: f64,
}

/// The methods of [`JobLoad`] for the keys that every load has, `measure` and `duration`. They are fields of each load,
/// because serde cannot flatten a structure into one that refuses unknown keys.
macro_rules! common_keys {
    () => {
        fn duration(&self) -> units::Span {
            self.duration
        }

        fn set_duration(&mut self, duration: units::Span) {
            self.duration = duration;
        }

        fn measure(&self) -> Option<Self::Measure> {
            self.measure
        }
    };
}
pub(crate) use common_keys;

/// A load of a plan and what its trials measure, whatever the job.
#[derive(Debug)]
pub struct Load(Box<dyn Condition>);

impl Load {
    pub(crate) fn new<L: JobLoad>(load: L, measure: L::Measure) -> Self {
        Self(Box::new(JobCondition { load, measure }))
    }

    /// The load's name in every record: `200B 10kpps N=1`.
    pub fn label(&self) -> String {
        self.0.label()
    }

    pub fn duration(&self) -> Span {
        self.0.duration()
    }

    pub(crate) fn set_duration(&mut self, duration: Span) {
        self.0.set_duration(duration);
    }

    /// The name of what is measured.
    pub fn measure(&self) -> &'static str {
        self.0.measure()
    }

    pub(crate) fn sees_all_cpus(&self) -> bool {
        self.0.sees_all_cpus()
    }

    /// About how long the loaded part of a trial takes.
    pub(crate) fn seconds(&self) -> f64 {
        self.duration().0.as_secs_f64() * self.0.windows()
    }

    pub(crate) fn shared_set_up(&self) -> Option<SharedSetUp> {
        self.0.shared_set_up()
    }

    /// The load as its job knows it, and what is measured; none where it is another job's.
    pub(crate) fn of_job<L: JobLoad>(&self) -> Option<(&L, L::Measure)> {
        let condition: &dyn Any = self.0.as_ref();
        let condition: &JobCondition<L> = condition.downcast_ref()?;
        Some((&condition.load, condition.measure))
    }
}

impl Clone for Load {
    fn clone(&self) -> Self {
        Self(self.0.clone_box())
    }
}

/// A load of one job and what its trials measure.
#[derive(Clone, Debug)]
struct JobCondition<L: JobLoad> {
    load: L,
    measure: L::Measure,
}

/// A [`JobCondition`] of any job.
trait Condition: Any + Debug + Send + Sync {
    fn label(&self) -> String;
    fn duration(&self) -> Span;
    fn set_duration(&mut self, duration: Span);
    fn measure(&self) -> &'static str;
    fn windows(&self) -> f64;
    fn sees_all_cpus(&self) -> bool;
    fn shared_set_up(&self) -> Option<SharedSetUp>;
    fn clone_box(&self) -> Box<dyn Condition>;
}

impl<L: JobLoad> Condition for JobCondition<L> {
    fn label(&self) -> String {
        self.load.label()
    }

    fn duration(&self) -> Span {
        self.load.duration()
    }

    fn set_duration(&mut self, duration: Span) {
        self.load.set_duration(duration);
    }

    fn measure(&self) -> &'static str {
        self.measure.name()
    }

    fn windows(&self) -> f64 {
        self.measure.windows()
    }

    fn sees_all_cpus(&self) -> bool {
        self.measure.sees_all_cpus()
    }

    fn shared_set_up(&self) -> Option<SharedSetUp> {
        self.load.shared_set_up(self.measure)
    }

    fn clone_box(&self) -> Box<dyn Condition> {
        Box::new(self.clone())
    }
}

/// The part of an experiment file that depends on its job.
#[derive(Deserialize)]
#[serde(bound(deserialize = "L: JobLoad"))]
struct JobSection<L: JobLoad> {
    measure: L::Measure,
    #[serde(rename = "load")]
    loads: Vec<Spanned<L>>,
}

/// A load and where it stands in its file.
pub(crate) type SpannedLoad = (Range<usize>, Load);

/// The loads that a file states.
///
/// # Errors
/// With the line of what the job does not know.
pub(crate) fn read<L: JobLoad>(document: &Document) -> Result<Vec<SpannedLoad>, Error> {
    let JobSection::<L> { measure, loads } = document.parse()?;
    let loads = loads.into_iter().map(|load| {
        let span = load.span();
        let load = load.into_inner();
        let measure = load.measure().unwrap_or(measure);
        (span, Load::new(load, measure))
    });
    Ok(loads.collect())
}

/// The name of a file, which stands for it in labels.
pub(crate) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// A time in labels and records: `600ms`, `50us`. Records are compared by these words, so their form does not change.
pub(crate) fn time_word(Span(time): Span) -> String {
    match time.as_micros() {
        us if us > 0 && us.is_multiple_of(1000) => format!("{}ms", us / 1000),
        us => format!("{us}us"),
    }
}

/// A rate in labels: `250pps`, `10kpps`, `1.5Mpps`. Records are compared by these words, so their form does not change.
pub(crate) fn rate_word(Pps(rate): Pps) -> String {
    match f64::from(rate) {
        pps if pps >= 1e6 => format!("{}Mpps", pps / 1e6),
        pps if pps >= 1e3 => format!("{}kpps", pps / 1e3),
        pps => format!("{pps}pps"),
    }
}

/// The words of a label for a load's options: `work=50us`, and `fec-group=10` of a table.
pub(crate) fn option_words(options: &BTreeMap<String, toml::Value>) -> Vec<String> {
    let mut words = Vec::new();
    for (key, value) in options {
        add_option(&mut words, key, value);
    }
    words
}

fn add_option(words: &mut Vec<String>, key: &str, value: &toml::Value) {
    match value {
        toml::Value::Table(table) => {
            for (inner, value) in table {
                add_option(words, &format!("{key}-{inner}"), value);
            }
        }
        toml::Value::String(text) => words.push(format!("{key}={text}")),
        other => words.push(format!("{key}={other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_labels_keep_their_form() {
        for text in ["250pps", "1.5kpps", "10kpps", "1.4Mpps"] {
            assert_eq!(rate_word(text.parse().unwrap()), text);
        }
        for (text, word) in [
            ("600ms", "600ms"),
            ("2s", "2000ms"),
            ("1.5ms", "1500us"),
            ("0s", "0us"),
        ] {
            assert_eq!(time_word(text.parse().unwrap()), word);
        }
    }
}
