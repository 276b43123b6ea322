//! Words that must not be in the tree, and unsafe code outside the crates made for it.

use std::fs;

use anyhow::{Context, Result};

use crate::run;
use crate::tally::Outcome;

/// Words, split so that this file passes its own check, and the endings of files they are barred from.
const BARRED_WORDS: &[(&str, &str, &[&str])] = &[
    ("TO", "DO", CODE),
    ("FIX", "ME", CODE),
    ("X", "XX", CODE),
    ("to", "do!(", CODE),
    ("unimplem", "ented!(", CODE),
    ("bpf_pri", "ntk(", CODE),
    ("<<<<", "<<< ", CODE),
    (">>>>", ">>> ", CODE),
];
const CODE: &[&str] = &[".rs", ".c", ".h", ".toml", ".sh", ".md"];

/// Crates whose purpose is to hold unsafe code, and files whose calls into libbpf demand it.
const UNSAFE_HOMES: &[&str] = &[
    "crates/sys/",
    "crates/bpf/src/",
    "crates/xsk/",
    "crates/acl/src/array.rs",
    "crates/acl/src/live/chain.rs",
    "crates/acl/src/lookup/",
    "crates/acl/src/table.rs",
    "crates/gpu/src/",
    "crates/lpm/src/fib4/",
    "crates/lpm/src/fib6/",
    "crates/features/src/kernel/calls.rs",
    "crates/netdev/src/attach.rs",
    "crates/netdev/src/program.rs",
    "crates/probes/src/programs.rs",
    "crates/router/src/gpu/launch.rs",
    "crates/router/src/gpu/native.rs",
    "crates/router/src/gpu/persistent.rs",
    "crates/router/src/gpu/recordings.rs",
    "crates/router-c/src/",
    "crates/test-support/src/bpf_link.rs",
];

pub(super) fn check() -> Result<Outcome> {
    let mut findings = Vec::new();
    for file in run::sources(CODE)? {
        if file.ends_with("vmlinux.h") {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| file.clone())?;
        for (number, line) in text.lines().enumerate() {
            if let Some(what) = barred(&file, line) {
                findings.push(format!("{file}:{}: {what}", number + 1));
            }
        }
    }
    Ok(super::verdict(
        &findings,
        "finish or remove it; unsafe code moves into sys, xsk or a lookup",
    ))
}

fn barred(file: &str, line: &str) -> Option<String> {
    let word = BARRED_WORDS
        .iter()
        .filter(|(_, _, endings)| endings.iter().any(|ending| file.ends_with(ending)))
        .map(|(head, tail, _)| format!("{head}{tail}"))
        .find(|word| line.contains(word.as_str()));
    if word.is_some() {
        return word;
    }
    let code = line.split("//").next().unwrap_or_default();
    let unsafe_block =
        code.contains(concat!("unsafe", " {")) || code.contains(concat!("unsafe", " impl"));
    let allowed = UNSAFE_HOMES.iter().any(|home| file.starts_with(home)) || file.contains("skel");
    (file.ends_with(".rs") && file.contains("/src/") && unsafe_block && !allowed)
        .then(|| "unsafe code".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_is_found_outside_its_crates() {
        let line = concat!("    unsafe", " { libc::getpid() }");
        assert!(barred("crates/relay/src/recv.rs", line).is_some());
        assert!(barred("crates/sys/src/sched.rs", line).is_none());
        assert!(barred("crates/relay/src/recv.rs", "// unsafe { }").is_none());
    }

    #[test]
    fn unfinished_work_is_found() {
        assert!(barred("crates/relay/src/recv.rs", concat!("to", "do!()")).is_some());
    }
}
