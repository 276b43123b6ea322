//! The verbs of `lowroad replicate`.

mod allow_delete;
mod apply;
mod capture;
mod compact;
mod coverage;
mod diff;
mod epochs;
mod keys;
mod log;
mod nats;
mod promote;
mod publish;
mod rebuild;
mod receive;
mod restore;
mod run;
mod serve;
mod status;
mod verify;

use clap::{Args, Subcommand};

use crate::exit::Failure;

/// Record what a program does to its files, as it does it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo lowroad replicate capture --tree /srv/app --to /var/lib/lowroad/app
  sudo lowroad replicate log /var/lib/lowroad/app --follow
  sudo lowroad replicate epochs /var/lib/lowroad/app --last 10
  sudo lowroad replicate diff /var/lib/lowroad/app --from 811
  sudo lowroad replicate apply /var/lib/lowroad/app --to /srv/replica --follow
  sudo lowroad replicate restore /var/lib/lowroad/app --out /srv/copy
  sudo lowroad replicate verify /var/lib/lowroad/app --against /srv/copy
  sudo lowroad replicate verify /var/lib/lowroad/app --rebuild
  sudo lowroad replicate serve /var/lib/lowroad/app --listen 0.0.0.0:7400 --cert server.pem --key server.key \\
      --clients-ca ca.pem
  sudo lowroad replicate receive tcp://source.example:7400 --to /var/lib/lowroad/app --cert edge-1.pem \\
      --key edge-1.key --server-ca ca.pem
  sudo lowroad replicate publish /var/lib/lowroad/app --to nats://127.0.0.1:4222/APP
  sudo lowroad replicate run --config /etc/lowroad/replicate.toml")]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Follow a tree and write each change to a log, until SIGINT or SIGTERM
    Capture(capture::Capture),
    /// Try file operations on a tree's file system, and list how each is captured
    Coverage(coverage::Coverage),
    /// List the records of a log
    Log(log::Log),
    /// List the epochs of a log, with their times
    Epochs(epochs::Epochs),
    /// List what changed between two epochs of a log
    Diff(diff::Diff),
    /// Shrink a log by folding its older epochs into one
    Compact(compact::Compact),
    /// Keep a replica's tree up to date from a log
    Apply(apply::Apply),
    /// Make a replica the source, and show what is lost
    Promote(promote::Promote),
    /// Restore the tree of an epoch to a new folder
    Restore(restore::Restore),
    /// Compare a folder, or a tree rebuilt from the log, with the tree of an epoch, byte for byte
    Verify(verify::Verify),
    /// Print the hash of the tree in a log or a folder
    Hash(verify::Hash),
    /// Ship a log to replicas over TCP as it is written, until SIGINT or SIGTERM
    Serve(serve::Serve),
    /// Keep a stream of NATS servers equal to a log as it is written, until SIGINT or SIGTERM
    Publish(publish::Publish),
    /// Keep a copy of a log that another machine ships, until SIGINT or SIGTERM
    Receive(receive::Receive),
    /// Make certificates for `serve` and `receive`
    Keys(keys::Keys),
    /// Run all parts of a configuration file in one process, until SIGINT or SIGTERM
    Run(run::Run),
    /// Show the state of the parts of a `run`
    Status(status::Status),
    /// Let a replica of a `run` that is halted remove most of its files, once
    AllowDelete(allow_delete::AllowDelete),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let json = arguments.json;
    // Every segment with bytes of the tree is an open file.
    process::limits::raise_descriptors();
    match arguments.verb {
        Verb::Apply(apply) => apply.run(json),
        Verb::Capture(capture) => capture.run(json),
        Verb::Coverage(coverage) => coverage.run(json),
        Verb::Log(log) => log.run(json),
        Verb::Epochs(epochs) => epochs.run(json),
        Verb::Diff(diff) => diff.run(json),
        Verb::Compact(compact) => compact.run(json),
        Verb::Restore(restore) => restore.run(json),
        Verb::Verify(verify) => verify.run(json),
        Verb::Hash(hash) => hash.run(json),
        Verb::Serve(serve) => serve.run(json),
        Verb::Promote(promote) => promote.run(json),
        Verb::Publish(publish) => publish.run(json),
        Verb::Receive(receive) => receive.run(json),
        Verb::Keys(keys) => keys.run(json),
        Verb::Run(run) => run.run(json),
        Verb::Status(status) => status.run(json),
        Verb::AllowDelete(allow) => allow.run(json),
    }
}
