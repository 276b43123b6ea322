//! Performs every file operation of programs on a tree, in an order that a seed determines: the
//! workload of the mirror tests. It prints each step with its result, and stops at barriers until
//! it is told to continue.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its output is what a test reads"
)]

mod carry;
mod choose;
mod data;
mod names;
mod operation;
mod peer;
mod tree;

use std::env;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;

use choose::Fuzz;

const USAGE: &str = "usage: statefuzz FOLDER SEED STEPS STEPS-TO-A-BARRIER
Prints STEP OPERATION: RESULT, and after so many steps, and the last, `barrier`: a line on standard
input then lets it go on, and the end of the input ends it.";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match *arguments.as_slice() {
        [peer::RECEIVE] => peer::receive(),
        [peer::INHERIT, length, seed] => inherited(length, seed),
        [folder, seed, steps, every] => match [seed, steps, every].map(str::parse) {
            [Ok(seed), Ok(steps), Ok(every)] if every > 0 => {
                run(Path::new(folder), seed, steps, every)
            }
            _ => return usage(),
        },
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("statefuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn inherited(length: &str, seed: &str) -> io::Result<()> {
    let length = length.parse().map_err(io::Error::other)?;
    peer::inherit(length, seed.parse().map_err(io::Error::other)?)
}

fn run(folder: &Path, seed: u64, steps: u64, every: u64) -> io::Result<()> {
    // Modes are tried as they are.
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut fuzz = Fuzz::new(seed, folder)?;
    let mut orders = io::stdin().lock().lines();
    for step in 1..=steps {
        let (operation, result) = fuzz.step()?;
        match result {
            Ok(moved) => println!("{step} {operation:?}: {moved}"),
            Err(error) => println!("{step} {operation:?}: {error}"),
        }
        if step % every == 0 || step == steps {
            println!("barrier");
            io::stdout().flush()?;
            if orders.next().transpose()?.is_none() {
                return Ok(());
            }
        }
    }
    Ok(())
}
