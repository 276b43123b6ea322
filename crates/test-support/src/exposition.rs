//! A strict reader of what a job answers to `GET /metrics`. It refuses what Prometheus refuses, and also what Prometheus
//! reads and the conventions for names, units and histograms do not allow.

use std::collections::{BTreeMap, BTreeSet};

/// Units that have a base unit, as the end of a name.
const SCALED_UNITS: [&str; 14] = [
    "_ns",
    "_us",
    "_ms",
    "_nanoseconds",
    "_microseconds",
    "_milliseconds",
    "_minutes",
    "_hours",
    "_kb",
    "_mb",
    "_kib",
    "_mib",
    "_kilobytes",
    "_percent",
];
/// What the formats add to the name of a family.
const SUFFIXES: [&str; 6] = ["_total", "_created", "_info", "_bucket", "_sum", "_count"];

/// The text formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Prometheus's text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

/// A page that keeps all rules.
#[derive(Debug)]
pub struct Page {
    pub families: Vec<Family>,
}

/// All samples between two descriptions.
#[derive(Debug, Default)]
pub struct Family {
    /// As it is described, so without `_total` in OpenMetrics.
    pub name: String,
    pub help: String,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: String,
    unit: String,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// The rule that a page breaks, and where.
type Complaint = String;

impl Syntax {
    /// The format that a header `Content-Type` names.
    #[must_use]
    pub fn of_content_type(value: &str) -> Option<Self> {
        match value {
            "text/plain; version=0.0.4; charset=utf-8" => Some(Self::Prometheus),
            "application/openmetrics-text; version=1.0.0; charset=utf-8" => Some(Self::OpenMetrics),
            _ => None,
        }
    }
}

impl Page {
    /// Reads the answer to a request by HTTP/1.1, and its body by what its header says of it.
    ///
    /// # Panics
    /// If the answer is no page of metrics, or breaks a rule.
    #[must_use]
    pub fn of_answer(answer: &str) -> Self {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let headers = head.lines().filter_map(|line| line.split_once(": "));
        let mut types = headers.filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let (_, content_type) = types.next().unwrap();
        let syntax = Syntax::of_content_type(content_type);
        let syntax = syntax.unwrap_or_else(|| panic!("{content_type} is no format of metrics"));
        Self::read(body, syntax).unwrap_or_else(|complaint| panic!("{complaint}\n{body}"))
    }

    /// Reads a whole page.
    ///
    /// # Errors
    /// The first rule that the page breaks.
    pub fn read(text: &str, syntax: Syntax) -> Result<Self, Complaint> {
        let text = match syntax {
            Syntax::Prometheus => text,
            Syntax::OpenMetrics => text
                .strip_suffix("# EOF\n")
                .ok_or("the page does not end with # EOF")?,
        };
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the last line has no end".to_owned());
        }
        let mut families: Vec<Family> = Vec::new();
        for line in text.split_terminator('\n') {
            let read = match line.strip_prefix("# ") {
                Some(description) => describe(&mut families, description),
                None => add_sample(families.last_mut(), line),
            };
            read.map_err(|complaint| format!("{complaint}: {line}"))?;
        }
        let page = Self { families };
        page.check(syntax)?;
        Ok(page)
    }

    /// The value of the sample with this name and these labels.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: BTreeMap<_, _> = labels
            .iter()
            .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
            .collect();
        let found = self
            .samples()
            .find(|sample| sample.name == name && sample.labels == labels);
        found
            .unwrap_or_else(|| panic!("no {name} {labels:?} in {self:#?}"))
            .value
    }

    /// All samples, in their order.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.families.iter().flat_map(|family| &family.samples)
    }

    /// Panics unless a table of `book` has each family with its type, its labels and its description, under the names of
    /// the text format.
    ///
    /// # Panics
    /// At the first family that is missing or described otherwise.
    pub fn assert_documented(&self, book: &str) {
        for family in &self.families {
            let row = rows(book).find(|row| row[0] == family.name);
            let row = row.unwrap_or_else(|| panic!("{} is missing in the book", family.name));
            let labels = row[2].split(", ").filter(|label| !label.is_empty());
            let labels: BTreeSet<_> = labels.map(|label| label.trim_matches('`')).collect();
            let own = family.samples[0].labels.keys().map(String::as_str);
            let own: BTreeSet<_> = own.filter(|label| *label != "le").collect();
            assert_eq!(
                (row[1], labels, row[3]),
                (&*family.kind, own, &*family.help),
                "{}",
                row[0]
            );
        }
    }

    /// Panics unless the page has each family of `book` whose name begins with `prefix`.
    ///
    /// # Panics
    /// At the first that the page does not have.
    pub fn assert_complete(&self, book: &str, prefix: &str) {
        let mut documented = rows(book)
            .map(|row| row[0])
            .filter(|name| name.starts_with(prefix))
            .peekable();
        assert!(documented.peek().is_some(), "no {prefix} in the book");
        for name in documented {
            let is_there = self.families.iter().any(|family| family.name == name);
            assert!(is_there, "{name} is in the book and not on the page");
        }
    }

    fn check(&self, syntax: Syntax) -> Result<(), Complaint> {
        let mut series = BTreeSet::new();
        for family in &self.families {
            let complain = |complaint| format!("{complaint}: {}", family.name);
            family.check(syntax).map_err(complain)?;
            for Sample { name, labels, .. } in &family.samples {
                if !series.insert((name, labels)) {
                    return Err(format!("a series appears twice: {name} {labels:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Name, type, labels and description of each family in the tables of a book.
fn rows(book: &str) -> impl Iterator<Item = [&str; 4]> {
    book.lines().filter_map(|line| {
        let cells: Vec<_> = line
            .strip_prefix('|')?
            .strip_suffix('|')?
            .split('|')
            .map(str::trim)
            .collect();
        let [name, kind, labels, help] = cells[..] else {
            return None;
        };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        Some([name, kind, labels, help])
    })
}

/// Reads a line about a family: HELP, TYPE, and UNIT where there is one, in this order.
fn describe(families: &mut Vec<Family>, description: &str) -> Result<(), Complaint> {
    let mut words = description.splitn(3, ' ');
    let (keyword, name) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let rest = words.next().unwrap_or("");
    if !is_name(name) {
        return Err("the name of a family is wrong".to_owned());
    }
    if rest.is_empty() {
        return Err("a description is empty".to_owned());
    }
    if keyword == "HELP" {
        if families.iter().any(|family| family.name == name) {
            return Err("the family is described twice".to_owned());
        }
        unescape(rest, false)?;
        families.push(Family {
            name: name.to_owned(),
            help: rest.to_owned(),
            ..Family::default()
        });
        return Ok(());
    }
    let family = families.last_mut().filter(|family| family.name == name);
    let family = family.ok_or("no HELP for this family precedes")?;
    let is_late = !family.samples.is_empty();
    let field = match keyword {
        "TYPE" => &mut family.kind,
        "UNIT" if family.kind.is_empty() => return Err("no TYPE precedes".to_owned()),
        "UNIT" => &mut family.unit,
        _ => return Err("neither HELP nor TYPE nor UNIT".to_owned()),
    };
    if is_late || !field.is_empty() {
        return Err(format!("{keyword} is repeated or follows a sample"));
    }
    rest.clone_into(field);
    Ok(())
}

fn add_sample(family: Option<&mut Family>, line: &str) -> Result<(), Complaint> {
    let family = family.filter(|family| !family.kind.is_empty());
    let family = family.ok_or("no HELP and TYPE precede this sample")?;
    family.samples.push(sample(line)?);
    Ok(())
}

/// `name{label="value",...} 1.5`, without a timestamp or an exemplar, which no job writes.
fn sample(line: &str) -> Result<Sample, Complaint> {
    let end = line.find(['{', ' ']).ok_or("a sample has no value")?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name) {
        return Err("the name of a sample is wrong".to_owned());
    }
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, value) = rest.split_once("=\"").ok_or("a label has no value")?;
            let end = closing_quote(value).ok_or("a label's value does not end")?;
            if !is_name(label) || label.contains(':') || label.starts_with("__") {
                return Err(format!("{label} is not the name of a label"));
            }
            let text = unescape(&value[..end], true)?;
            if labels.insert(label.to_owned(), text).is_some() {
                return Err(format!("label {label} appears twice"));
            }
            rest = &value[end + 1..];
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            rest = rest
                .strip_prefix(',')
                .ok_or("labels are not separated by commas")?;
        }
    }
    let value = rest
        .strip_prefix(' ')
        .ok_or("no space precedes the value")?;
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value: number(value)?,
    })
}

/// Where the text in quotes ends.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    })
}

/// Only these characters are escaped, quotes only in the values of labels.
fn unescape(text: &str, is_label: bool) -> Result<String, Complaint> {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let meant = match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('\\') => '\\',
                Some('"') if is_label => '"',
                other => return Err(format!("\\{other:?} is no escape sequence")),
            },
            '\r' => return Err("a carriage return".to_owned()),
            plain => plain,
        };
        plain.push(meant);
    }
    Ok(plain)
}

/// A finite number of the formats, or `+Inf` as the bound of a bucket.
fn number(text: &str) -> Result<f64, Complaint> {
    let is_numeric = |byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    let parsed = text.parse().ok().filter(|number: &f64| number.is_finite());
    let parsed = parsed.filter(|_| text.bytes().all(is_numeric));
    parsed.ok_or_else(|| format!("{text:?} is no finite number"))
}

impl Family {
    fn check(&self, syntax: Syntax) -> Result<(), Complaint> {
        self.check_name(syntax)?;
        if self.samples.is_empty() {
            return Err("no samples".to_owned());
        }
        let label_names = |sample: &Sample| -> Vec<String> {
            let names = sample.labels.keys().filter(|name| *name != "le");
            names.cloned().collect()
        };
        let first = label_names(&self.samples[0]);
        for sample in &self.samples {
            let suffix = sample.name.strip_prefix(&self.name).unwrap_or("?");
            if !self.suffixes(syntax).contains(&suffix) {
                return Err(format!("{} belongs to another family", sample.name));
            }
            if label_names(sample) != first {
                return Err(format!(
                    "samples have different labels: {:?}",
                    sample.labels
                ));
            }
            if sample.labels.contains_key("le") != (suffix == "_bucket") {
                return Err("le is the label of buckets".to_owned());
            }
            if sample.value < 0.0 && self.kind != "gauge" {
                return Err(format!("{} is negative", sample.name));
            }
            if self.kind == "info" && (sample.value - 1.0).abs() > f64::EPSILON {
                return Err("the value of an info metric is not 1".to_owned());
            }
        }
        match &*self.kind {
            "histogram" => self.check_histograms(),
            _ => Ok(()),
        }
    }

    fn check_name(&self, syntax: Syntax) -> Result<(), Complaint> {
        let is_counter = self.kind == "counter";
        let base = match syntax {
            Syntax::Prometheus if is_counter => self
                .name
                .strip_suffix("_total")
                .ok_or("a counter does not end with _total")?,
            // An info metric of OpenMetrics is a gauge here.
            Syntax::Prometheus => self.name.strip_suffix("_info").unwrap_or(&self.name),
            Syntax::OpenMetrics => &self.name,
        };
        if let Some(suffix) = SUFFIXES.iter().find(|suffix| base.ends_with(*suffix)) {
            return Err(format!("{suffix} is not for a {}", self.kind));
        }
        if let Some(unit) = SCALED_UNITS.iter().find(|unit| base.ends_with(*unit)) {
            return Err(format!("{unit} is not a base unit"));
        }
        let has_unit = |unit: &&&str| base.ends_with(&format!("_{unit}"));
        let unit = ["seconds", "bytes"].iter().find(has_unit).copied();
        if syntax == Syntax::OpenMetrics && unit.unwrap_or("") != self.unit {
            return Err(format!("UNIT is {:?}", self.unit));
        }
        if syntax == Syntax::Prometheus && !self.unit.is_empty() {
            return Err("UNIT is of OpenMetrics".to_owned());
        }
        Ok(())
    }

    /// What follows the family's name in the names of its samples.
    fn suffixes(&self, syntax: Syntax) -> &'static [&'static str] {
        match (&*self.kind, syntax) {
            ("counter", Syntax::OpenMetrics) => &["_total"],
            ("info", Syntax::OpenMetrics) => &["_info"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            ("gauge", _) | ("counter", Syntax::Prometheus) => &[""],
            _ => &[],
        }
    }

    /// For each label set: the samples stand together, the buckets ascend and accumulate up to `+Inf`, and the count is
    /// that of the last bucket.
    fn check_histograms(&self) -> Result<(), Complaint> {
        let labels = |sample: &Sample| {
            let mut labels = sample.labels.clone();
            labels.remove("le");
            labels
        };
        let mut known = BTreeSet::new();
        for samples in self
            .samples
            .chunk_by(|one, next| labels(one) == labels(next))
        {
            let set = labels(&samples[0]);
            let complain = |complaint: &str| Err(format!("{complaint} {set:?}"));
            if !known.insert(set.clone()) {
                return complain("the samples of a histogram are apart");
            }
            let mut last = (f64::NEG_INFINITY, 0.0);
            let (mut sums, mut counts) = (0, Vec::new());
            for sample in samples {
                match sample.labels.get("le") {
                    Some(bound) => {
                        let bound = match &**bound {
                            "+Inf" => f64::INFINITY,
                            bound => number(bound)?,
                        };
                        if bound <= last.0 || sample.value < last.1 {
                            return complain("the buckets do not ascend and accumulate");
                        }
                        last = (bound, sample.value);
                    }
                    None if sample.name.ends_with("_sum") => sums += 1,
                    None => counts.push(sample.value),
                }
            }
            if last.0 < f64::INFINITY {
                return complain("no bucket +Inf");
            }
            if sums != 1 || counts != [last.1] {
                return complain("no _sum, or _count is not that of the bucket +Inf");
            }
        }
        Ok(())
    }
}

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
    name.bytes().all(is_part)
        && name
            .bytes()
            .next()
            .is_some_and(|byte| !byte.is_ascii_digit())
}
