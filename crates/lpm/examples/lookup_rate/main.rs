//! How fast addresses are looked up, beside peers in processes of their own, pass by pass in turn.
//!
//! ```text
//! lookup_rate write FOLDER [HOPS [SEED]]   routes, keys and answers, from the table in LOWROAD_CORPUS
//! lookup_rate serve FOLDER                 answers `pass ENGINE TRAFFIC` by one JSON line
//! lookup_rate compare PASSES TRAFFICS ENGINE=COMMAND...   the first is what the others are compared to
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a measurement for the terminal"
)]

#[path = "../../tests/common/mod.rs"]
mod common;
mod compare;
mod serve;
mod write;

use std::path::Path;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    match arguments[..] {
        ["write", folder] => write::write(Path::new(folder), 200, 42),
        ["write", folder, hops] => write::write(Path::new(folder), number(hops), 42),
        ["write", folder, hops, seed] => {
            write::write(Path::new(folder), number(hops), number(seed));
        }
        ["serve", folder] => serve::serve(Path::new(folder)),
        ["compare", passes, traffics, ref engines @ ..] => {
            compare::compare(number(passes), traffics, engines);
        }
        _ => {
            eprintln!(
                "lookup_rate write FOLDER [HOPS [SEED]] | serve FOLDER | compare PASSES TRAFFICS ENGINE=COMMAND..."
            );
            std::process::exit(2);
        }
    }
}
