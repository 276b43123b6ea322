//! The output of `lowroad features`: the arguments, and the sink that they name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use features::anonymize::{Key, Pseudonyms, RowAnonymizer};
use features::labels::{Error as LabelError, Labeller, Labels, labelled_schema};
use features::schema::Schema;
use features::sink::ipfix::{TcpExporter, UdpExporter};
use features::sink::{
    Backlog, FileSink, Format, KafkaSink, Mode, NatsSink, Queue, Rotation, SchemaRef, Scorer,
    ScoringSink, Sink, UnscoredRows, scored_schema,
};
use units::{Size, Span};

use super::schema;
use crate::exit::{self, Failure};

/// The schema of rows where neither `--schema` nor a model names one.
pub(super) const DEFAULT_SCHEMA: &str = "flow.v1";

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct Output {
    /// Write the columns of this schema [default: flow.v1, or a model's]; `lowroad features schema` lists the
    /// schemas
    #[arg(long)]
    schema: Option<String>,
    /// Add a column label by this CSV file: labels by time, addresses, ports and protocol, or the ground truth of
    /// CIC-IDS2017, UNSW-NB15 or CTU-13
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Replace addresses, names, flow and tunnel ids by pseudonyms, with the key of 32 bytes or 64 hexadecimal digits in
    /// this file, which only its owner can open
    #[arg(long, value_name = "KEYFILE")]
    anonymize: Option<PathBuf>,
    /// Leave columns of the schema out
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    without: Vec<String>,
    /// Write to a file, - for standard output, an IPFIX collector, ipfix+udp://HOST:PORT or ipfix+tcp://HOST:PORT,
    /// a subject of a NATS stream, nats://HOST:PORT/SUBJECT, or a Kafka topic, kafka://HOST:PORT/TOPIC
    #[arg(long, short, value_name = "OUTPUT")]
    out: String,
    /// Write this format [default: by the end of the file's name]
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// Start another file, NAME-TIME-N, at about this size
    #[arg(long, value_name = "SIZE")]
    rotate_size: Option<Size>,
    /// Start another file, NAME-TIME-N, after this long
    #[arg(long, value_name = "DURATION")]
    rotate_every: Option<Span>,
    /// Log in to NATS by the first line of this file, USER:PASSWORD or a token, which only its owner can open
    #[arg(long, value_name = "FILE")]
    nats_login: Option<PathBuf>,
    /// Observation domain of IPFIX messages
    #[arg(long, value_name = "N", default_value = "0")]
    ipfix_domain: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatName {
    Parquet,
    Arrow,
    Csv,
    Jsonl,
    Ipfix,
}

impl Output {
    pub(super) fn schema(&self) -> Result<&'static Schema, Failure> {
        self.schema_or(DEFAULT_SCHEMA)
    }

    /// The requested schema, or this one.
    pub(super) fn schema_or(&self, name: &str) -> Result<&'static Schema, Failure> {
        let schema = schema::find(self.schema.as_deref().unwrap_or(name))?;
        schema.without(&self.without).map_err(|unknown| {
            let name = schema.name;
            let what = "lowroad features schema";
            Failure::Input(format!(
                "{name} has no column \"{unknown}\"; `{what} {name}` lists them"
            ))
        })
    }

    /// Whether rows go to standard output, which then holds nothing else.
    pub(super) fn is_standard(&self) -> bool {
        self.out == "-"
    }

    /// Whether labels are read from this file.
    pub(super) fn has_labels(&self, path: &Path) -> bool {
        let labels = self.labels.as_deref();
        labels.is_some_and(|labels| is_same(labels, path))
    }

    /// Whether rows have pseudonyms instead of addresses.
    pub(super) fn is_anonymized(&self) -> bool {
        self.anonymize.is_some()
    }

    /// Whether this is where rows go.
    pub(super) fn goes_to(&self, path: &Path) -> bool {
        is_same(Path::new(&self.out), path)
    }

    /// Prints an account where it does not mix with rows.
    pub(super) fn report(&self, text: &str) -> Result<(), Failure> {
        if self.is_standard() {
            eprint!("{text}");
            return Ok(());
        }
        exit::print(text)
    }

    /// The sink, on a thread of its own.
    pub(super) fn create(&self, schema: &SchemaRef, mode: Mode) -> Result<Box<dyn Sink>, Failure> {
        let sink = self.open(schema, mode)?;
        Ok(Box::new(Queue::start(sink, mode)?))
    }

    /// As `create`, with scores if there is a scorer. Live rows are not scored while too many wait; the second
    /// value counts these.
    pub(super) fn create_scored(
        &self,
        schema: &SchemaRef,
        mode: Mode,
        scorer: Option<Box<dyn Scorer>>,
    ) -> Result<(Box<dyn Sink>, UnscoredRows), Failure> {
        let Some(scorer) = scorer else {
            return Ok((self.create(schema, mode)?, UnscoredRows::default()));
        };
        let sink = self.open(&scored_schema(schema), mode)?;
        let waiting = Backlog::default();
        let pressed = (mode == Mode::Live).then(|| waiting.clone());
        let scored = ScoringSink::new(sink, scorer, schema, pressed);
        let unscored = scored.unscored();
        let queue = Queue::start_counting(Box::new(scored), mode, waiting)?;
        Ok((Box::new(queue), unscored))
    }

    /// The output, with labels where there is a file of them.
    fn open(&self, schema: &SchemaRef, mode: Mode) -> Result<Box<dyn Sink>, Failure> {
        let Some(path) = &self.labels else {
            return self.open_anonymized(schema, mode);
        };
        if self.goes_to(path) {
            let what = "has the labels, and cannot be --out as well";
            return Err(Failure::Input(format!("{} {what}", path.display())));
        }
        let refuse = |error: LabelError| Failure::Input(error.to_string());
        let labelled = labelled_schema(schema).map_err(refuse)?;
        Labeller::check(schema).map_err(refuse)?;
        let labels = Labels::read(path).map_err(refuse)?;
        let sink = self.open_anonymized(&labelled, mode)?;
        let labeller = Labeller::new(sink, Arc::new(labels), schema).map_err(refuse)?;
        Ok(Box::new(labeller))
    }

    /// The output, with pseudonyms where there is a key. Labels come before: they are joined by addresses.
    fn open_anonymized(&self, schema: &SchemaRef, mode: Mode) -> Result<Box<dyn Sink>, Failure> {
        let Some(path) = &self.anonymize else {
            return self.open_plain(schema, mode);
        };
        if self.goes_to(path) {
            let what = "is the key of --anonymize, and cannot be --out as well";
            return Err(Failure::Input(format!("{} {what}", path.display())));
        }
        RowAnonymizer::check(schema).map_err(Failure::Input)?;
        let pseudonyms = pseudonyms(path)?;
        let sink = self.open_plain(schema, mode)?;
        let sink = RowAnonymizer::new(sink, pseudonyms, schema).map_err(Failure::Input)?;
        Ok(Box::new(sink))
    }

    fn open_plain(&self, schema: &SchemaRef, mode: Mode) -> Result<Box<dyn Sink>, Failure> {
        let rotation = Rotation {
            size: self.rotate_size.map(|Size(bytes)| bytes),
            every: self.rotate_every.map(|every| every.0),
        };
        let domain = self.ipfix_domain;
        if self.nats_login.is_some() && !self.out.starts_with("nats://") {
            let what = "--nats-login: only an output nats://HOST:PORT/SUBJECT has it";
            return Err(Failure::Input(what.to_owned()));
        }
        Ok(match self.out.split_once("://") {
            Some(("ipfix+udp", collector)) => {
                Box::new(UdpExporter::connect(collector, schema, domain)?)
            }
            Some(("ipfix+tcp", collector)) => {
                Box::new(TcpExporter::connect(collector, schema, domain, mode)?)
            }
            Some(("nats", server)) => {
                let login = self.nats_login.as_deref().map(read_login).transpose()?;
                Box::new(NatsSink::connect(server, login.as_deref(), mode)?)
            }
            Some(("kafka", broker)) => Box::new(KafkaSink::connect(broker, mode)?),
            Some((scheme, _)) => {
                let known = "ipfix+udp, ipfix+tcp, nats and kafka";
                let what = format!("no output is called {scheme}://; there are {known}");
                return Err(Failure::Input(what));
            }
            None => {
                let path = Path::new(&self.out);
                let sink = FileSink::create(path, self.file_format()?, schema, rotation, mode);
                Box::new(sink?)
            }
        })
    }

    fn file_format(&self) -> Result<Format, Failure> {
        match self.format {
            Some(format) => Ok(format.into()),
            None if self.is_standard() => Ok(Format::Csv),
            None => Ok(Format::of(Path::new(&self.out))?),
        }
    }
}

/// The pseudonyms by the key in a file.
fn pseudonyms(path: &Path) -> Result<Pseudonyms, Failure> {
    let refuse = |why: &str| Failure::Input(format!("{}: {why}", path.display()));
    let bytes = process::secret::read_bytes(path).map_err(|error| refuse(&error.to_string()))?;
    let key = Key::read(&bytes).map_err(|error| refuse(&error.to_string()))?;
    Ok(Pseudonyms::new(&key))
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Parquet => Self::Parquet,
            FormatName::Arrow => Self::Arrow,
            FormatName::Csv => Self::Csv,
            FormatName::Jsonl => Self::JsonLines,
            FormatName::Ipfix => Self::Ipfix,
        }
    }
}

/// The login in a file, so that no list of processes shows it.
fn read_login(path: &Path) -> Result<String, Failure> {
    let refuse = |what: &str| Failure::Input(format!("{}: {what}", path.display()));
    let text = process::secret::read(path).map_err(|error| refuse(&error.to_string()))?;
    let login = text.lines().next().unwrap_or_default().trim();
    match login {
        "" => Err(refuse(
            "the first line is empty; write USER:PASSWORD or a token",
        )),
        login => Ok(login.to_owned()),
    }
}

/// Whether two names are of the same file. The names of files that do not exist are compared as text.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let device = Path::new("/dev");
    let named = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (one, other) = (named(one), named(other));
    one == other && !one.starts_with(device)
}
