//! The client: tests against a server, one after the other.

use std::ops::ControlFlow;
use std::time::Duration;

use netbench::client::{self, Error, Progress, Session};
use netbench::{DEFAULT_TESTS, Options, Spec, Test, Token, json};
use pico_args::Arguments;
use process::limits;
use process::shutdown::Shutdown;
use units::{Pps, Size, Span};

use crate::{Failure, finish, line, option, token};

const DURATION: Span = Span(Duration::from_secs(10));

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let specs = specs(&mut arguments)?;
    let histogram = arguments.contains("--histogram");
    let token = token(&mut arguments)?;
    let target: String = arguments.free_from_str().map_err(Failure::input)?;
    finish(arguments)?;
    limits::raise_descriptors();
    let mut session = match specs.iter().any(|spec| spec.test.needs_server()) {
        true => Some(open(&target, token.as_ref())?),
        false => None,
    };
    // Before the first test a signal ends the program at once, as there is no result to keep.
    let shutdown = Shutdown::install().map_err(Failure::failed)?;
    let mut watch = |_: &Progress| match shutdown.requested() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    for spec in &specs {
        let outcome = match &mut session {
            Some(session) => session.measure(spec, &mut watch),
            None => client::measure(&target, spec, &mut watch),
        };
        let outcome = outcome?;
        line(&json::outcome(&outcome, histogram))?;
        match outcome.ended_early {
            Some(_) if shutdown.requested() => return Ok(()),
            // Some reasons begin with the target.
            Some(why) if why.starts_with(&target) => return Err(Failure::failed(why)),
            Some(why) => return Err(Failure::failed(format!("{target}: {why}"))),
            None => {}
        }
    }
    Ok(())
}

fn open(target: &str, token: Option<&Token>) -> Result<Session, Failure> {
    Session::open(target, token).map_err(|error| match error {
        Error::NoToken(_) => Failure::input(format!("{error} with --token-file")),
        other => other.into(),
    })
}

fn specs(arguments: &mut Arguments) -> Result<Vec<Spec>, Failure> {
    let tests: Option<String> = option(arguments, "--test")?;
    let Span(duration) = option(arguments, "--duration")?.unwrap_or(DURATION);
    let warmup: Option<Span> = option(arguments, "--warmup")?;
    let flows: Option<u16> = option(arguments, "--flows")?;
    let rate: Option<Pps> = option(arguments, "--rate")?;
    let busy_poll: Option<Span> = option(arguments, "--busy-poll")?;
    let reverse = arguments.contains("--reverse");
    let mut size = |name| -> Result<Option<u64>, Failure> {
        let size: Option<Size> = option(arguments, name)?;
        Ok(size.map(|size| size.0))
    };
    let options = Options {
        duration,
        warmup: warmup.map(|span| span.0),
        flows: vec![flows.unwrap_or(1)],
        request: size("--request")?.into_iter().collect(),
        response: size("--response")?.into_iter().collect(),
        message: size("--message")?.into_iter().collect(),
        rate: rate.map(|rate| rate.0.into()),
        reverse,
        socket_buffer: size("--socket-buffer")?,
        busy_poll: busy_poll.map(|span| span.0),
    };
    let names = tests.as_deref().unwrap_or(DEFAULT_TESTS).split(',');
    let tests: Result<Vec<Test>, _> = names.map(str::parse).collect();
    Ok(options.specs(&tests.map_err(Failure::input)?)?)
}
