//! The verbs of `lowroad relay`: serving, and requests to a running relay.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand, value_parser};
use control::{Client, ready};
use datapath::Missing;
use netdev::policy::{Check, UnknownCheck};
use process::shutdown::{Reload, Shutdown};
use relay::config::{self, CONTROL};
use relay::core::{Changes, Core, Explanation, StreamView};
use relay::spec::{Multicast, Rate, Source, StreamSpec, SubscriberSpec};
use serde::Serialize;
use serde_json::{Value, json};
use units::{Pps, Span, socket_address};

use crate::control_endpoint::ControlEndpoint;
use crate::exit::{self, Failure, OrFail as _};

/// Relay streams, each to many receivers
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo lowroad relay serve --config relay.toml
  sudo lowroad relay subscriber add cam1 edge-2 192.0.2.9:6000")]
pub(crate) struct Arguments {
    /// Control socket of the relay [default: the configuration file's, else /run/lowroad-relay/relay.sock]
    #[arg(long, global = true, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Relay the streams of a configuration file, until SIGINT or SIGTERM; SIGHUP reads the file again
    Serve {
        /// Configuration file, in TOML
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Validate the file and exit
        #[arg(long)]
        check: bool,
    },
    /// Read the configuration file again, and change what differs
    Reload,
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
        /// Give up the hand-over after this long
        #[arg(long, value_name = "DURATION", default_value = "5s")]
        switch_timeout: Span,
    },
    /// Show how each subscriber is served, and why not by the fast path
    Explain { stream: Option<String> },
    /// Print the numbers of packets received, forwarded, delivered and dropped
    Counters,
    /// Print the counters in the Prometheus text format
    Metrics,
}

#[expect(
    clippy::large_enum_variant,
    reason = "parsed once, and clap takes no box here"
)]
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
    /// Address of the stream: ADDR:PORT or [ADDR]:PORT
    #[arg(value_parser = socket_address)]
    listen: SocketAddr,
    #[arg(long)]
    datapath: String,
    /// Accept packets from these senders: any, latch, or prefixes
    #[arg(long, required = true, value_delimiter = ',')]
    source: Vec<String>,
    /// Accept packets on these interfaces [default: all]
    #[arg(long, value_delimiter = ',')]
    interface: Vec<String>,
    /// Accept at most this rate in total
    #[arg(long, value_name = "RATE")]
    rate: Option<Pps>,
    /// Accept at most this rate from each source
    #[arg(long, value_name = "RATE")]
    source_rate: Option<Pps>,
    /// Release a latch after this long without a packet from its holder
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    latch_timeout: Span,
    /// Send packets with this TTL, and accept TTL 1 [default: one less than on arrival]
    #[arg(long, value_parser = value_parser!(u8).range(1..))]
    ttl: Option<u8>,
    /// Skip these checks of the kernel on a fast path, such as nft-input
    #[arg(long, value_name = "CHECK", value_delimiter = ',', value_parser = local_check)]
    bypass: Vec<Check>,
    /// Join the group on this interface
    #[arg(long, value_name = "INTERFACE")]
    multicast_interface: Option<String>,
    /// Join the group for this sender only
    #[arg(long, value_name = "ADDR", requires = "multicast_interface")]
    multicast_source: Option<std::net::IpAddr>,
}

/// A check that packets which this machine receives or sends meet.
fn local_check(name: &str) -> Result<Check, UnknownCheck> {
    Check::named(name, Check::LOCAL)
}

#[derive(Debug, Subcommand)]
enum SubscriberVerb {
    /// Send a stream to one more destination
    Add {
        stream: String,
        name: String,
        /// Destination: ADDR:PORT or [ADDR]:PORT
        #[arg(value_parser = socket_address)]
        to: SocketAddr,
        /// Send packets from this address [default: the stream's own]
        #[arg(long, value_parser = socket_address)]
        from: Option<SocketAddr>,
        /// Send packets through this interface; required for groups
        #[arg(long)]
        interface: Option<String>,
        /// Send packets with this TTL [default: the stream's]
        #[arg(long, value_parser = value_parser!(u8).range(1..))]
        ttl: Option<u8>,
        /// Remove the subscriber after this long unless it is added again
        #[arg(long, value_name = "DURATION")]
        expires: Option<Span>,
    },
    /// Stop sending a stream to a subscriber
    Remove { stream: String, name: String },
    /// List a stream's subscribers
    List { stream: String },
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    execute(arguments).map_err(|failure| failure.needed_by("relay"))
}

fn execute(arguments: Arguments) -> Result<(), Failure> {
    let Arguments {
        control,
        json,
        verb,
    } = arguments;
    let call = match verb {
        Verb::Serve { config, check } => return serve(&config, control, check, json),
        Verb::Reload => Call::new("reload", Value::Null, reloaded),
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
            Call::new("switch", params, silent)
        }
        Verb::Explain { stream } => Call::new("explain", json!({ "stream": stream }), explained),
        Verb::Counters => Call::new("counters", Value::Null, counted),
        Verb::Metrics => Call::new("metrics", Value::Null, as_text),
    };
    let control = control.unwrap_or_else(|| CONTROL.into());
    let mut client = Client::connect(control)?;
    let answer = client.call(call.method, call.params)?;
    if json {
        return print_json(&answer);
    }
    exit::print(&(call.render)(answer)?)
}

/// A method to call, and how its answer is printed.
struct Call {
    method: &'static str,
    params: Value,
    render: fn(Value) -> Result<String, Failure>,
}

impl Call {
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

fn serve(path: &Path, control: Option<PathBuf>, check: bool, json: bool) -> Result<(), Failure> {
    let datapaths = relay::datapaths();
    let names: Vec<_> = datapaths.iter().map(|datapath| datapath.name()).collect();
    let mut config = config::load(path, &names)?;
    config.control = control.unwrap_or(config.control);
    if check {
        return exit::print(&format!("{}: correct\n", path.display()));
    }
    can_run(&config, &datapaths)?;
    let shutdown = Shutdown::install().or_fail()?;
    let reload = Reload::install().or_fail()?;
    let core = std::sync::Arc::new(Core::start(&config)?);
    let (control, http) = (config.control.as_path(), config.http.as_ref());
    let handle = relay::control::handle;
    let endpoint = ControlEndpoint::start(&core, control, http, handle, Core::metrics)?;
    announce(&config, endpoint.address(), json)?;
    while !shutdown.wait(SIGNALS) {
        if reload.requested() {
            match core.reload() {
                Ok(changes) => tracing::info!(%changes, "the configuration file was read again"),
                Err(error) => tracing::error!(%error, "the configuration stays as it was"),
            }
        }
    }
    if let Err(error) = ready::stopping() {
        tracing::warn!(%error, "the service manager does not hear that the relay stops");
    }
    drop(endpoint);
    let views = stop(core);
    if json {
        print_json(&views)
    } else {
        exit::print(&table(&views))
    }
}

/// How often SIGHUP is asked for.
const SIGNALS: Duration = Duration::from_millis(250);

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

/// Checks every datapath of the file, before anything is opened.
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
    ready::notify().or_fail()
}

fn stream(verb: StreamVerb) -> Result<Call, Failure> {
    match verb {
        StreamVerb::Add(new) => Ok(Call::new("stream.add", to_json(&described(new)?)?, silent)),
        StreamVerb::Remove { stream } => Ok(Call::new(
            "stream.remove",
            json!({ "stream": stream }),
            silent,
        )),
        StreamVerb::List => Ok(Call::new("stream.list", Value::Null, streams)),
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
        ttl: new.ttl,
        bypass: new.bypass,
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

fn subscriber(verb: SubscriberVerb) -> Call {
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
            Call::new("subscriber.add", params, silent)
        }
        SubscriberVerb::Remove { stream, name } => {
            let params = json!({ "stream": stream, "subscriber": name });
            Call::new("subscriber.remove", params, silent)
        }
        SubscriberVerb::List { stream } => {
            Call::new("subscriber.list", json!({ "stream": stream }), subscribers)
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

fn reloaded(answer: Value) -> Result<String, Failure> {
    let changes: Changes = from_json(answer)?;
    Ok(format!("{changes}\n"))
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

fn to_json(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).or_fail()
}

fn from_json<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, Failure> {
    serde_json::from_value(answer)
        .map_err(|error| Failure::Failed(anyhow!("the relay is of another version: {error}")))
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).or_fail()?;
    exit::print(&format!("{text}\n"))
}

fn print_line(value: &Value) -> Result<(), Failure> {
    exit::print(&format!("{value}\n"))
}
