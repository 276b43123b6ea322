//! Prints what the CPU accountant found of loads whose cost is known beforehand.
#![expect(
    clippy::print_stdout,
    reason = "an example shows its result on standard output"
)]

fn main() -> Result<(), probes::Error> {
    for check in probes::account::known_answers()? {
        let verdict = if check.passed { "ok" } else { "FAILED" };
        println!("{verdict:6}  {}: {}", check.name, check.found);
    }
    Ok(())
}
