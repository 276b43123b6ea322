//! Prints what one packet pays to be probed, warm: `cargo run --release -p probes --example
//! probe_cost`.
#![expect(
    clippy::print_stdout,
    reason = "an example shows its result on standard output"
)]

fn main() -> Result<(), probes::Error> {
    let cost = probes::delay::cost(300_000)?;
    println!(
        "egress {:.0} ns (null {:.0})   ingress {:.0} ns (null {:.0})   pair above null {:.0} ns",
        cost.egress_ns,
        cost.null_egress_ns,
        cost.ingress_ns,
        cost.null_ingress_ns,
        cost.pair_ns(),
    );
    Ok(())
}
