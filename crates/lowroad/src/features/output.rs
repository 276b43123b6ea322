//! Where `lowroad features` writes: the arguments, and the sink that they name.

use std::path::Path;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use control::units::{Size, Span};
use features::schema::Schema;
use features::sink::ipfix::{TcpExporter, UdpExporter};
use features::sink::{
    Backlog, Error, FileSink, Format, KafkaSink, Mode, NatsSink, Queue, Rotation, SchemaRef,
    Scored, Scorer, Sink, Unscored, scored_schema,
};

use super::schema;
use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Output {
    /// Which columns, flow.v1 unless a model asks for others; `lowroad features schema` lists the schemas
    #[arg(long)]
    schema: Option<String>,
    /// Leave columns of the schema out
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    without: Vec<String>,
    /// A file, - for standard output, an IPFIX collector, ipfix+udp://HOST:PORT or ipfix+tcp://HOST:PORT,
    /// a subject of a NATS stream, nats://HOST:PORT/SUBJECT, or a Kafka topic, kafka://HOST:PORT/TOPIC
    #[arg(long, short, value_name = "OUTPUT")]
    out: String,
    /// By default what the file's name ends in
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// Begin another file, NAME-TIME-N, at about this size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    rotate_size: Option<u64>,
    /// Begin another file, NAME-TIME-N, after this long
    #[arg(long, value_name = "DURATION")]
    rotate_every: Option<Span>,
    /// The observation domain that IPFIX messages name
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
        self.schema_or("flow.v1")
    }

    /// The schema that was asked for, or this one.
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
    fn is_standard(&self) -> bool {
        self.out == "-"
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
        Ok(Box::new(Queue::start(sink, mode).map_err(failure)?))
    }

    /// The same with scores, where there is a scorer. Live rows go without while too many wait: how many
    /// did is told beside the sink.
    pub(super) fn create_scored(
        &self,
        schema: &SchemaRef,
        mode: Mode,
        scorer: Option<Box<dyn Scorer>>,
    ) -> Result<(Box<dyn Sink>, Unscored), Failure> {
        let Some(scorer) = scorer else {
            return Ok((self.create(schema, mode)?, Unscored::default()));
        };
        let sink = self.open(&scored_schema(schema), mode)?;
        let waiting = Backlog::default();
        let pressed = (mode == Mode::Live).then(|| waiting.clone());
        let scored = Scored::new(sink, scorer, schema, pressed);
        let unscored = scored.unscored();
        let queue = Queue::start_counting(Box::new(scored), mode, waiting).map_err(failure)?;
        Ok((Box::new(queue), unscored))
    }

    fn open(&self, schema: &SchemaRef, mode: Mode) -> Result<Box<dyn Sink>, Failure> {
        let rotation = Rotation {
            size: self.rotate_size,
            every: self.rotate_every.map(|every| every.0),
        };
        let domain = self.ipfix_domain;
        Ok(match self.out.split_once("://") {
            Some(("ipfix+udp", collector)) => {
                Box::new(UdpExporter::connect(collector, schema, domain).map_err(failure)?)
            }
            Some(("ipfix+tcp", collector)) => {
                Box::new(TcpExporter::connect(collector, schema, domain, mode).map_err(failure)?)
            }
            Some(("nats", server)) => Box::new(NatsSink::connect(server, mode).map_err(failure)?),
            Some(("kafka", broker)) => Box::new(KafkaSink::connect(broker, mode).map_err(failure)?),
            Some((scheme, _)) => {
                let known = "ipfix+udp, ipfix+tcp, nats and kafka";
                let what = format!("no output is called {scheme}://; there are {known}");
                return Err(Failure::Input(what));
            }
            None => {
                let path = Path::new(&self.out);
                let sink = FileSink::create(path, self.file_format()?, schema, rotation, mode);
                Box::new(sink.map_err(failure)?)
            }
        })
    }

    fn file_format(&self) -> Result<Format, Failure> {
        match self.format {
            Some(format) => Ok(format.into()),
            None if self.is_standard() => Ok(Format::Csv),
            None => Format::of(Path::new(&self.out)).map_err(failure),
        }
    }
}

/// What the user wrote, or what the machine did.
pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::UnknownFormat { .. }
        | Error::NoElement(_)
        | Error::NoSubject(_)
        | Error::NoTopic(_)
        | Error::IsAFolder { .. }
        | Error::NotAFile { .. } => Failure::Input(error.to_string()),
        other => Failure::Failed(anyhow!(other)),
    }
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

/// Whether two names are one file's. Of files that are not there yet, the names decide.
pub(super) fn is_same(one: &Path, other: &Path) -> bool {
    let device = Path::new("/dev");
    let named = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (one, other) = (named(one), named(other));
    one == other && !one.starts_with(device)
}

/// Bytes as people write them.
pub(super) fn size(text: &str) -> Result<u64, String> {
    text.parse().map(|Size(bytes)| bytes)
}
