//! `netbench-agent`: both ends of netbench, as `lowroad netbench` has them, with JSON alone to say.
#![expect(clippy::print_stderr, reason = "a program says why it ends")]

mod run;
mod serve;

use std::fmt::Display;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use netbench::Token;
use pico_args::Arguments;
use serde_json::Value;

const USAGE: &str = "\
usage: netbench-agent serve [--listen ADDR:PORT] [--token-file FILE] [--clients NUMBER]
           [--max-duration DURATION] [--max-mbps MBPS] [--data-ports PORT[-PORT]]
       netbench-agent run TARGET [--test TEST,...] [--duration DURATION] [--warmup DURATION] [--flows N]
           [--request SIZE] [--response SIZE] [--message SIZE] [--rate RATE] [--reverse]
           [--socket-buffer SIZE] [--busy-poll DURATION] [--histogram] [--token-file FILE]
Options, units and what is printed are those of `lowroad netbench` with --json.
";

/// Why it ends, and with which code: 1 failed, 2 bad input, 3 this machine cannot.
struct Failure {
    what: String,
    code: u8,
}

impl Failure {
    fn input(what: impl Display) -> Self {
        let what = what.to_string();
        Self { what, code: 2 }
    }

    fn failed(what: impl Display) -> Self {
        let what = what.to_string();
        Self { what, code: 1 }
    }

    fn missing(what: impl Display) -> Self {
        let what = what.to_string();
        Self { what, code: 3 }
    }
}

impl From<pico_args::Error> for Failure {
    fn from(error: pico_args::Error) -> Self {
        Self::input(error)
    }
}

fn main() -> ExitCode {
    // In a virtual machine it is the first program, too.
    if let Some(ended) = guest::main() {
        return ended;
    }
    match dispatch(Arguments::from_env()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { what, code }) => {
            eprintln!("error: {what}");
            ExitCode::from(code)
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
    match arguments.subcommand()?.as_deref() {
        Some("serve") => serve::run(arguments),
        Some("run") => run::run(arguments),
        Some(other) => Err(Failure::input(format!("no verb {other}\n{USAGE}"))),
        None => Err(Failure::input(format!("a verb is missing\n{USAGE}"))),
    }
}

/// The value of an option that need not be there.
fn option<T: FromStr<Err: Display>>(
    arguments: &mut Arguments,
    name: &'static str,
) -> Result<Option<T>, Failure> {
    Ok(arguments.opt_value_from_str(name)?)
}

/// Nothing was said that nobody understands.
fn finish(arguments: Arguments) -> Result<(), Failure> {
    match arguments.finish().first() {
        Some(unknown) => Err(Failure::input(format!("unexpected {}", unknown.display()))),
        None => Ok(()),
    }
}

/// What both ends know, from the file that `--token-file` names.
fn token(arguments: &mut Arguments) -> Result<Option<Token>, Failure> {
    let file: Option<PathBuf> = option(arguments, "--token-file")?;
    let token = file.map(|file| Token::read(&file)).transpose();
    token.map_err(Failure::input)
}

fn line(object: &Value) -> Result<(), Failure> {
    print(&format!("{object}\n"))
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::failed(format!("standard output: {error}")))
}
