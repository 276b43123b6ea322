//! The client: tests against a server, one after the other.

use std::ops::ControlFlow;
use std::str::FromStr;

use netbench::client::{AddressFamily, Client, Error, Progress, Target};
use netbench::{
    DEFAULT_TESTS, LOAD_FLOWS, LoadDirection, LoadPlan, Options, Plan, Source, Test, json,
};
use pico_args::Arguments;
use process::limits;
use process::shutdown::Shutdown;
use units::{Rate, Size, Span};

use crate::{Failure, finish, line, option, token};

pub(crate) fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let histogram = arguments.contains("--histogram");
    let token = token(&mut arguments)?;
    let mut source: Source = option(&mut arguments, "--bind")?.unwrap_or_default();
    source.port = option(&mut arguments, "--client-port")?;
    let given = Options {
        client_port: source.port,
        histogram,
        token: token.is_some(),
        ..Options::default()
    };
    let plans = plans(&mut arguments, &given)?;
    let family = match (arguments.contains("-4"), arguments.contains("-6")) {
        (true, false) => Some(AddressFamily::V4),
        (false, true) => Some(AddressFamily::V6),
        (false, false) => None,
        (true, true) => return Err(Failure::input("-4 and -6 exclude each other")),
    };
    let name: String = arguments.free_from_str().map_err(Failure::input)?;
    finish(arguments)?;
    limits::raise_descriptors();
    let target = Target {
        name: name.clone(),
        token,
        source,
        family,
    };
    let mut client = Client::new(target, &plans).map_err(|error| match error {
        Error::NoToken(_) => Failure::input(format!("{error} with --token-file")),
        other => other.into(),
    })?;
    // Before the first test a signal ends the program at once, as there is no result to keep.
    let shutdown = Shutdown::install().map_err(Failure::failed)?;
    for plan in &plans {
        let mut broken = None;
        let mut watch = |progress: &Progress| {
            if let Some(interval) = &progress.interval
                && let Err(failure) = line(&json::interval(&plan.spec, interval))
            {
                broken = Some(failure);
            }
            match shutdown.requested() || broken.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let outcomes = client.run(plan, &mut watch)?;
        if let Some(failure) = broken {
            return Err(failure);
        }
        for outcome in &outcomes {
            line(&json::outcome(outcome, histogram))?;
        }
        match outcomes.into_iter().find_map(|outcome| outcome.ended_early) {
            Some(_) if shutdown.requested() => return Ok(()),
            // Some reasons begin with the target.
            Some(why) if why.starts_with(&name) => return Err(Failure::failed(why)),
            Some(why) => return Err(Failure::failed(format!("{name}: {why}"))),
            None => {}
        }
    }
    Ok(())
}

/// The tests, with some options that have been read before.
fn plans(arguments: &mut Arguments, given: &Options) -> Result<Vec<Plan>, Failure> {
    let tests: Option<String> = option(arguments, "--test")?;
    let mut span = |name| -> Result<_, Failure> {
        let span: Option<Span> = option(arguments, name)?;
        Ok(span.map(|span| span.0))
    };
    let (duration, warmup) = (span("--duration")?, span("--warmup")?);
    let busy_poll = span("--busy-poll")?;
    let interval: Option<Span> = arguments
        .opt_value_from_str(["-i", "--interval"])
        .map_err(Failure::input)?;
    let interval = interval.map(|span| span.0);
    let direction: Option<LoadDirection> = option(arguments, "--load")?;
    let flows: Option<u16> = option(arguments, "--load-flows")?;
    if direction.is_none() && flows.is_some() {
        return Err(Failure::input("--load-flows goes with --load"));
    }
    let load = direction.map(|direction| LoadPlan {
        direction,
        flows: flows.unwrap_or(LOAD_FLOWS),
    });
    let list = |size: Option<Size>| size.into_iter().map(|size| size.0).collect();
    let options = Options {
        duration,
        warmup,
        flows: vec![option(arguments, "--flows")?.unwrap_or(1)],
        request: list(option(arguments, "--request")?),
        response: list(option(arguments, "--response")?),
        message: list(option(arguments, "--message")?),
        rate: option::<Rate>(arguments, "--rate")?,
        reverse: arguments.contains("--reverse"),
        bidirectional: arguments.contains("--bidir"),
        load,
        bytes: option::<Size>(arguments, "--bytes")?.map(|size| size.0),
        interval,
        congestion: option(arguments, "--congestion")?,
        mss: option(arguments, "--mss")?,
        pacing: option::<Rate>(arguments, "--pacing")?,
        dscp: option(arguments, "--dscp")?,
        socket_buffer: option::<Size>(arguments, "--socket-buffer")?.map(|size| size.0),
        busy_poll,
        ..*given
    };
    let names = tests.as_deref().unwrap_or(DEFAULT_TESTS).split(',');
    let tests: Result<Vec<Test>, _> = names.map(Test::from_str).collect();
    Ok(options.plans(&tests.map_err(Failure::input)?)?)
}
