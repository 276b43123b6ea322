//! How a device works on batches: arguments that every command with a device has.

use clap::Args;
use clap::builder::TypedValueParser;
use router::gpu::{Launching, Options, Schedule, Width};

use crate::router::engine::named;

#[derive(Debug, Args)]
pub(in crate::router) struct Way {
    /// How the device's kernels are brought to work on a batch [default: stream]
    #[arg(long, value_parser = launching(), value_name = "HOW", requires = "device")]
    launch: Option<Launching>,
    /// What the device's kernels do for each packet [default: per-packet]
    #[arg(long, value_parser = schedule(), value_name = "SCHEDULE", requires = "device")]
    schedule: Option<Schedule>,
    /// What of a decision comes back from the device [default: u32]
    #[arg(long, value_parser = result(), value_name = "RESULT", requires = "device")]
    gpu_result: Option<Width>,
}

impl Way {
    pub(super) fn set(&self, options: &mut Options) {
        options.launching = self.launch.unwrap_or(options.launching);
        options.schedule = self.schedule.unwrap_or(options.schedule);
        options.result = self.gpu_result.unwrap_or(options.result);
    }
}

/// What of it is not as usual, as in ` per-function u16`.
pub(super) fn name(options: &Options) -> String {
    let mut name = String::new();
    if options.launching != Launching::Stream {
        name += &format!(" {}", options.launching.name());
    }
    if options.schedule != Schedule::PerPacket {
        name += &format!(" {}", options.schedule.name());
    }
    if options.result != Width::U32 {
        name += &format!(" {}", options.result.name());
    }
    name
}

fn launching() -> impl TypedValueParser<Value = Launching> {
    named(
        Launching::ALL,
        Launching::name,
        |launching| match launching {
            Launching::Stream => "Each by a call",
            Launching::Graph => "All of a batch's by one call that was recorded before",
            Launching::Persistent => "One stays, and sees in mapped memory that a batch has come",
        },
    )
}

fn schedule() -> impl TypedValueParser<Value = Schedule> {
    named(Schedule::ALL, Schedule::name, |schedule| match schedule {
        Schedule::PerPacket => "One kernel routes and filters",
        Schedule::PerFunction => "One kernel routes, one filters, and a third joins both",
    })
}

fn result() -> impl TypedValueParser<Value = Width> {
    named(Width::ALL, Width::name, |width| match width {
        Width::U32 => "Four bytes, as it is made",
        Width::U16 => "Two bytes, of tables with at most 16383 next hops",
        Width::Compact => "As many bits as the next hops need",
    })
}
