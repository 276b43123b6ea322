//! The end that asks: tests against a server, one after the other.

use std::ops::ControlFlow;
use std::time::Duration;

use control::limits;
use control::shutdown::Shutdown;
use control::units::{Pps, Size, Span};
use netbench::client::{self, Error, Progress, Session};
use netbench::{Direction, Given, Spec, Test, json};
use pico_args::Arguments;

use crate::{Failure, finish, line, option, token};

const TESTS: &str = "tcp_stream,udp_rate,tcp_rr,udp_rr";
const DURATION: Span = Span(Duration::from_secs(10));

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let specs = specs(&mut arguments)?;
    let histogram = arguments.contains("--histogram");
    let token = token(&mut arguments)?;
    let target: String = arguments.free_from_str()?;
    finish(arguments)?;
    limits::raise_descriptors();
    let mut session = match specs.iter().all(|spec| spec.test == Test::Icmp) {
        true => None,
        false => Some(Session::open(&target, token.as_ref()).map_err(failure)?),
    };
    // Until now there was nothing to keep: a signal has ended it at once.
    let shutdown = Shutdown::install().map_err(Failure::failed)?;
    let mut watch = |_: &Progress| match shutdown.requested() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    for spec in &specs {
        let outcome = match &mut session {
            Some(session) => session.measure(spec, &mut watch),
            None => client::ping(&target, spec, &mut watch),
        };
        let outcome = outcome.map_err(failure)?;
        line(&json::outcome(&outcome, histogram))?;
        match outcome.ended_early {
            Some(_) if shutdown.requested() => return Ok(()),
            // Some say it themselves.
            Some(why) if why.starts_with(&target) => return Err(Failure::failed(why)),
            Some(why) => return Err(Failure::failed(format!("{target}: {why}"))),
            None => {}
        }
    }
    Ok(())
}

fn specs(arguments: &mut Arguments) -> Result<Vec<Spec>, Failure> {
    let tests: Option<String> = option(arguments, "--test")?;
    let Span(duration) = option(arguments, "--duration")?.unwrap_or(DURATION);
    let warmup: Option<Span> = option(arguments, "--warmup")?;
    let flows: Option<u16> = option(arguments, "--flows")?;
    let rate: Option<Pps> = option(arguments, "--rate")?;
    let busy_poll: Option<Span> = option(arguments, "--busy-poll")?;
    let reverse = arguments.contains("--reverse");
    let mut bytes = |name| -> Result<Option<u32>, Failure> {
        let size: Option<Size> = option(arguments, name)?;
        // More than there can be is refused by what checks it.
        Ok(size.map(|Size(bytes)| u32::try_from(bytes).unwrap_or(u32::MAX)))
    };
    let [request, response, message, socket_buffer] =
        ["--request", "--response", "--message", "--socket-buffer"].map(&mut bytes);
    let (request, response, message) = (request?, response?, message?);
    let socket_buffer = socket_buffer?;
    let named = tests.as_deref().unwrap_or(TESTS).split(',');
    let tests = named.map(str::parse).collect::<Result<Vec<Test>, _>>();
    let tests = tests.map_err(Failure::input)?;
    let given = Given {
        reverse,
        request: request.is_some(),
        response: response.is_some(),
        message: message.is_some(),
    };
    given.check(&tests).map_err(Failure::input)?;
    tests
        .into_iter()
        .map(|test| {
            let usual = Spec::new(test, duration);
            let messages = test.has_messages();
            let spec = Spec {
                warmup_us: warmup.map_or(usual.warmup_us, micros),
                flows: flows.unwrap_or(usual.flows),
                request: request.filter(|_| !messages).unwrap_or(usual.request),
                response: response.filter(|_| !messages).unwrap_or(usual.response),
                message: message.filter(|_| messages).unwrap_or(usual.message),
                rate: rate.map(|Pps(rate)| rate.into()).or(usual.rate),
                direction: match reverse && test.streams() {
                    true => Direction::Down,
                    false => Direction::Up,
                },
                socket_buffer,
                busy_poll_us: busy_poll.map(|span| u32::try_from(micros(span)).unwrap_or(u32::MAX)),
                ..usual
            };
            let checked = spec.check();
            checked.map_err(|error| Failure::input(format!("{test}: {error}")))?;
            Ok(spec)
        })
        .collect()
}

fn micros(Span(duration): Span) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn failure(error: Error) -> Failure {
    match error {
        Error::NoToken(_) => Failure::input(format!("{error} with --token-file")),
        Error::Missing { .. } => Failure::missing(error),
        wrong if wrong.asked_wrong() => Failure::input(wrong),
        failed => Failure::failed(failed),
    }
}
