//! `netbench-agent`: both ends of netbench, as in `lowroad netbench`, with JSON output only.
#![expect(clippy::print_stderr, reason = "a program prints why it fails")]

mod run;
mod serve;

use std::fmt::Display;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use datapath::{Classify, ErrorClass};
use netbench::Token;
use pico_args::Arguments;
use serde_json::Value;

const USAGE: &str = "\
usage: netbench-agent serve [--listen ADDR:PORT] [--token-file FILE] [--clients NUMBER]
           [--max-duration DURATION] [--max-mbps MBPS] [--data-ports PORT[-PORT]]
       netbench-agent run TARGET [--test TEST,...] [--duration DURATION] [--warmup DURATION] [--flows N]
           [--request SIZE] [--response SIZE] [--message SIZE] [--rate RATE] [--bytes SIZE] [--reverse | --bidir]
           [--load up|down|both] [--load-flows N] [-i DURATION] [--congestion NAME] [--mss BYTES]
           [--pacing RATE] [--dscp NUMBER] [--bind ADDR|DEVICE|ADDR%DEVICE] [--client-port PORT] [-4 | -6]
           [--socket-buffer SIZE] [--busy-poll DURATION] [--histogram] [--token-file FILE]
Options, units and what is printed are those of `lowroad netbench` with --json.
";

/// An error that ends the program, and the class that decides its exit code.
struct Failure {
    what: String,
    class: ErrorClass,
}

impl Failure {
    fn input(what: impl Display) -> Self {
        Self::new(what, ErrorClass::Input)
    }

    fn failed(what: impl Display) -> Self {
        Self::new(what, ErrorClass::Failed)
    }

    fn new(what: impl Display, class: ErrorClass) -> Self {
        let what = what.to_string();
        Self { what, class }
    }
}

impl<E: Classify> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(&error, error.class())
    }
}

fn main() -> ExitCode {
    // In a virtual machine it is also the first program.
    if let Some(ended) = guest::main() {
        return ended;
    }
    match dispatch(Arguments::from_env()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { what, class }) => {
            eprintln!("error: {what}");
            ExitCode::from(class.exit_code())
        }
    }
}

fn dispatch(mut arguments: Arguments) -> Result<(), Failure> {
    if arguments.contains(["-h", "--help"]) {
        return print(USAGE);
    }
    if arguments.contains(["-V", "--version"]) {
        return print(concat!("netbench-agent ", env!("CARGO_PKG_VERSION"), "\n"));
    }
    let verb = arguments.subcommand().map_err(Failure::input)?;
    match verb.as_deref() {
        Some("serve") => serve::run(arguments),
        Some("run") => run::run(arguments),
        Some(other) => Err(Failure::input(format!("no verb {other}\n{USAGE}"))),
        None => Err(Failure::input(format!("a verb is missing\n{USAGE}"))),
    }
}

/// The value of an optional argument.
fn option<T: FromStr<Err: Display>>(
    arguments: &mut Arguments,
    name: &'static str,
) -> Result<Option<T>, Failure> {
    let value = arguments.opt_value_from_str(name);
    value.map_err(Failure::input)
}

/// Refuses arguments that nothing has used.
fn finish(arguments: Arguments) -> Result<(), Failure> {
    match arguments.finish().first() {
        Some(unknown) => Err(Failure::input(format!("unexpected {}", unknown.display()))),
        None => Ok(()),
    }
}

/// The token in the file that `--token-file` names.
fn token(arguments: &mut Arguments) -> Result<Option<Token>, Failure> {
    let file: Option<PathBuf> = option(arguments, "--token-file")?;
    Ok(file.map(|file| Token::read(&file)).transpose()?)
}

fn line(object: &Value) -> Result<(), Failure> {
    print(&format!("{object}\n"))
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::failed(format!("standard output: {error}")))
}
