//! The verbs of `lowroad relay`: serving, and asking a relay that serves.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use control::shutdown::Shutdown;
use control::units::{Pps, Span};
use control::{Client, Kind, ready};
use datapath::Missing;
use relay::config::{self, CONTROL};
use relay::core::{Core, Explanation, StreamView};
use relay::spec::{Multicast, Rate, Source, StreamSpec, SubscriberSpec};
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::{self, Failure};
use crate::interface::Interface;

/// One stream in, many receivers out
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo lowroad relay serve --config relay.toml
  sudo lowroad relay subscriber add cam1 edge-2 192.0.2.9:6000")]
pub(crate) struct Arguments {
    /// The control socket of the relay
    #[arg(long, global = true, value_name = "PATH", default_value = CONTROL)]
    control: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Relay what a configuration file says, until SIGINT or SIGTERM
    Serve {
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Validate the file and exit
        #[arg(long)]
        check: bool,
    },
    /// Add, remove and list streams
    #[command(subcommand)]
    Stream(StreamVerb),
    /// Add, remove and list a stream's subscribers
    #[command(subcommand)]
    Subscriber(SubscriberVerb),
    /// Move a stream to another datapath without loss or reordering
    Switch {
        stream: String,
        #[arg(long)]
        datapath: String,
        /// How long the hand-over may take
        #[arg(long, value_name = "DURATION", default_value = "5s")]
        switch_timeout: Span,
    },
    /// Say which road each subscriber is on, and why not the fast one
    Explain { stream: Option<String> },
    /// Print what was received, forwarded, delivered and dropped
    Counters,
    /// Print the counters in the Prometheus text format
    Metrics,
}

#[derive(Debug, Subcommand)]
enum StreamVerb {
    /// Start relaying a stream
    Add(NewStream),
    /// Stop relaying a stream
    Remove { stream: String },
    /// List the streams
    List,
}

#[derive(Debug, Args)]
struct NewStream {
    name: String,
    /// Where it comes in: ADDR:PORT or [ADDR]:PORT
    listen: SocketAddr,
    #[arg(long)]
    datapath: String,
    /// Who may send: any, latch, or prefixes
    #[arg(long, required = true, value_delimiter = ',')]
    source: Vec<String>,
    /// Interfaces it may arrive on; by default all
    #[arg(long, value_delimiter = ',')]
    interface: Vec<String>,
    /// At most this rate altogether
    #[arg(long, value_name = "RATE")]
    rate: Option<Pps>,
    /// At most this rate from each source
    #[arg(long, value_name = "RATE")]
    source_rate: Option<Pps>,
    /// How long a latch survives its holder's silence
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    latch_timeout: Span,
    /// Join the group on this interface
    #[arg(long, value_name = "INTERFACE")]
    multicast_interface: Option<String>,
    /// Join the group for this sender only
    #[arg(long, value_name = "ADDR", requires = "multicast_interface")]
    multicast_source: Option<std::net::IpAddr>,
}

#[derive(Debug, Subcommand)]
enum SubscriberVerb {
    /// Send a stream to one more destination
    Add {
        stream: String,
        name: String,
        /// Where to: ADDR:PORT or [ADDR]:PORT
        to: SocketAddr,
        /// The address packets come from; by default the stream's own
        #[arg(long)]
        from: Option<SocketAddr>,
        /// The interface packets leave by; groups need one
        #[arg(long)]
        interface: Option<String>,
        /// A fixed TTL; groups only
        #[arg(long)]
        ttl: Option<u8>,
        /// How long it stays without being added again
        #[arg(long, value_name = "DURATION")]
        expires: Option<Span>,
    },
    /// Stop sending a stream to a subscriber
    Remove { stream: String, name: String },
    /// List a stream's subscribers
    List { stream: String },
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments {
        control,
        json,
        verb,
    } = arguments;
    let asked = match verb {
        Verb::Serve { config, check } => return serve(&config, check, json),
        Verb::Stream(verb) => stream(verb)?,
        Verb::Subscriber(verb) => subscriber(verb),
        Verb::Switch {
            stream,
            datapath,
            switch_timeout,
        } => {
            let timeout_ms = u64::try_from(switch_timeout.0.as_millis()).unwrap_or(u64::MAX);
            let params =
                json!({ "stream": stream, "datapath": datapath, "timeout_ms": timeout_ms });
            Asked::new("switch", params, silent)
        }
        Verb::Explain { stream } => Asked::new("explain", json!({ "stream": stream }), explained),
        Verb::Counters => Asked::new("counters", Value::Null, counted),
        Verb::Metrics => Asked::new("metrics", Value::Null, as_text),
    };
    let mut client = Client::connect(control).map_err(failure)?;
    let answer = client.call(asked.method, asked.params).map_err(failure)?;
    if json {
        return print_json(&answer);
    }
    exit::print(&(asked.render)(answer)?)
}

/// A method to call, and how its answer reads.
struct Asked {
    method: &'static str,
    params: Value,
    render: fn(Value) -> Result<String, Failure>,
}

impl Asked {
    fn new(
        method: &'static str,
        params: Value,
        render: fn(Value) -> Result<String, Failure>,
    ) -> Self {
        Self {
            method,
            params,
            render,
        }
    }
}

fn serve(path: &Path, check: bool, json: bool) -> Result<(), Failure> {
    let datapaths = relay::datapaths();
    let names: Vec<_> = datapaths.iter().map(|datapath| datapath.name()).collect();
    let config = config::load(path, &names).map_err(|error| Failure::Input(error.to_string()))?;
    if check {
        return exit::print(&format!("{}: correct\n", path.display()));
    }
    can_run(&config, &datapaths)?;
    let shutdown = Shutdown::install().map_err(|error| Failure::Failed(error.into()))?;
    let core = std::sync::Arc::new(Core::start(&config).map_err(failure)?);
    let (control, http) = (config.control.as_path(), config.http.as_ref());
    let handle = relay::control::handle;
    let interface = Interface::start(&core, control, http, handle, Core::metrics)?;
    announce(&config, interface.address(), json)?;
    while !shutdown.wait(Duration::from_secs(3600)) {}
    if let Err(error) = ready::stopping() {
        tracing::warn!(%error, "the service manager does not hear that the relay stops");
    }
    drop(interface);
    let views = stop(core);
    if json {
        print_json(&views)
    } else {
        exit::print(&table(&views))
    }
}

/// Requests in progress end first.
fn stop(mut core: std::sync::Arc<Core>) -> Vec<StreamView> {
    loop {
        match std::sync::Arc::try_unwrap(core) {
            Ok(core) => return core.stop(),
            Err(shared) => core = shared,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Every datapath the file names, before anything is opened.
fn can_run(
    config: &config::Config,
    datapaths: &[Box<dyn datapath::Datapath<relay::Relay>>],
) -> Result<(), Failure> {
    let named = |name: &str| config.streams.iter().any(|stream| stream.datapath == name);
    let missing: Vec<(String, Missing)> = datapaths
        .iter()
        .filter(|datapath| named(datapath.name()))
        .filter_map(|datapath| {
            let missing = datapath.check().err()?;
            Some((datapath.name().to_owned(), missing))
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::Missing(missing))
}

/// One line, once packets are handled and the control socket answers.
fn announce(config: &config::Config, web: Option<SocketAddr>, json: bool) -> Result<(), Failure> {
    let subscribers: usize = config
        .streams
        .iter()
        .map(|stream| stream.subscribers.len())
        .sum();
    let streams = config.streams.len();
    let control = config.control.display();
    if json {
        print_line(&json!({ "ready": {
            "streams": streams, "subscribers": subscribers, "control": control.to_string(),
            "http": web,
        }}))?;
    } else {
        let http = web.map_or_else(String::new, |address| format!("  http {address}"));
        exit::print(&format!(
            "ready  streams {streams}  subscribers {subscribers}  control {control}{http}\n"
        ))?;
    }
    ready::notify().map_err(|error| Failure::Failed(error.into()))
}

fn stream(verb: StreamVerb) -> Result<Asked, Failure> {
    match verb {
        StreamVerb::Add(new) => Ok(Asked::new("stream.add", to_json(&described(new)?)?, silent)),
        StreamVerb::Remove { stream } => Ok(Asked::new(
            "stream.remove",
            json!({ "stream": stream }),
            silent,
        )),
        StreamVerb::List => Ok(Asked::new("stream.list", Value::Null, streams)),
    }
}

fn described(new: NewStream) -> Result<StreamSpec, Failure> {
    Ok(StreamSpec {
        source: source(&new.source)?,
        name: new.name,
        listen: new.listen,
        datapath: new.datapath,
        interfaces: new.interface,
        rate: Rate {
            stream: new.rate,
            source: new.source_rate,
        },
        // Measuring aids, for configuration files.
        work: None,
        fec: None,
        latch_timeout: new.latch_timeout,
        multicast: new.multicast_interface.map(|interface| Multicast {
            interface,
            source: new.multicast_source,
        }),
        subscribers: Vec::new(),
    })
}

fn source(words: &[String]) -> Result<Source, Failure> {
    match words {
        [word] if word == "any" => Ok(Source::Any),
        [word] if word == "latch" => Ok(Source::Latch),
        prefixes => prefixes
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, String>>()
            .map(Source::Prefixes)
            .map_err(|what| Failure::Input(format!("--source: {what}"))),
    }
}

fn subscriber(verb: SubscriberVerb) -> Asked {
    match verb {
        SubscriberVerb::Add {
            stream,
            name,
            to,
            from,
            interface,
            ttl,
            expires,
        } => {
            let subscriber = SubscriberSpec {
                name,
                to,
                from,
                interface,
                ttl,
                expires,
            };
            let params = json!({ "stream": stream, "subscriber": subscriber });
            Asked::new("subscriber.add", params, silent)
        }
        SubscriberVerb::Remove { stream, name } => {
            let params = json!({ "stream": stream, "subscriber": name });
            Asked::new("subscriber.remove", params, silent)
        }
        SubscriberVerb::List { stream } => {
            Asked::new("subscriber.list", json!({ "stream": stream }), subscribers)
        }
    }
}

fn silent(_: Value) -> Result<String, Failure> {
    Ok(String::new())
}

fn streams(answer: Value) -> Result<String, Failure> {
    let streams: Vec<StreamSpec> = from_json(answer)?;
    let line = |stream: &StreamSpec| {
        let StreamSpec {
            name,
            listen,
            datapath,
            subscribers,
            ..
        } = stream;
        format!(
            "{name}  {listen}  datapath {datapath}  subscribers {}\n",
            subscribers.len()
        )
    };
    Ok(streams.iter().map(line).collect())
}

fn subscribers(answer: Value) -> Result<String, Failure> {
    let subscribers: Vec<SubscriberSpec> = from_json(answer)?;
    let line = |subscriber: &SubscriberSpec| format!("{}  {}\n", subscriber.name, subscriber.to);
    Ok(subscribers.iter().map(line).collect())
}

fn explained(answer: Value) -> Result<String, Failure> {
    let explanations: Vec<Explanation> = from_json(answer)?;
    Ok(explanations.iter().map(|one| format!("{one}\n")).collect())
}

fn counted(answer: Value) -> Result<String, Failure> {
    from_json(answer).map(|views: Vec<StreamView>| table(&views))
}

fn as_text(answer: Value) -> Result<String, Failure> {
    from_json(answer)
}

fn table(views: &[StreamView]) -> String {
    views.iter().map(StreamView::to_string).collect()
}

/// A relay's answer to a request: what was wrong with it, or with the relay.
fn failure(error: control::Error) -> Failure {
    match error.kind {
        Kind::BadRequest
        | Kind::TooLarge
        | Kind::UnknownMethod
        | Kind::NotFound
        | Kind::Unauthorised => Failure::Input(error.message),
        Kind::Missing => {
            let (what, remedy) = error
                .message
                .split_once("; ")
                .unwrap_or((&error.message, ""));
            Failure::Missing(vec![("relay".into(), Missing::new(what, remedy))])
        }
        Kind::Conflict | Kind::Failed | Kind::Unreachable => {
            Failure::Failed(anyhow!(error.message))
        }
    }
}

fn to_json(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::Failed(error.into()))
}

fn from_json<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, Failure> {
    serde_json::from_value(answer)
        .map_err(|error| Failure::Failed(anyhow!("the relay is of another version: {error}")))
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::Failed(error.into()))?;
    exit::print(&format!("{text}\n"))
}

fn print_line(value: &Value) -> Result<(), Failure> {
    exit::print(&format!("{value}\n"))
}
