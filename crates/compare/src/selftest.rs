//! `lowroad selftest`: the instruments measured against known answers on this machine.

use std::process::ExitCode;

use anyhow::Result;
use arguments::Selftest;
use datapath::ErrorClass;
use experiment::selftest::{self, Check};

use crate::{print, stop};

pub(crate) fn run(arguments: &Selftest) -> Result<ExitCode> {
    crate::need_root("selftest", crate::BUILDS)?;
    let stop = stop::catch()?;
    let mut checks: Vec<Check> = Vec::new();
    for name in selftest::NAMES {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == name) {
            continue;
        }
        for check in selftest::run(name, arguments.quick, &stop)? {
            if !arguments.json {
                let mark = if check.passed { "pass" } else { "FAIL" };
                print::line(format_args!(
                    "{mark}  {:<44} {:<26} goal {}",
                    check.name, check.measured, check.goal
                ))?;
            }
            checks.push(check);
        }
    }
    match arguments.json {
        true => print::line(format_args!("{}", serde_json::to_string_pretty(&checks)?))?,
        false => print::line(format_args!("\n{}", conclusion(&checks)))?,
    }
    if checks.iter().all(|check| check.passed) {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(crate::exit_code(ErrorClass::Failed))
    }
}

/// Whether this machine can measure, and what it can resolve.
fn conclusion(checks: &[Check]) -> String {
    let failed: Vec<&str> = checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check| check.name.as_str())
        .collect();
    let all = checks.len();
    let mut text = match failed.len() {
        0 => format!("This machine can measure: all {all} checks passed."),
        some => format!(
            "This machine fails {some} of {all} checks: {}.\nDo not trust results that rest on these; \
             docs/src/method.md says what each check means.",
            failed.join("; ")
        ),
    };
    let resolved: Vec<String> = checks
        .iter()
        .filter_map(|check| check.resolves_pct.as_ref())
        .map(|(quantity, pct)| format!("{pct:.1} % in {quantity}"))
        .collect();
    if !resolved.is_empty() {
        text += &format!(
            "\nA quick experiment resolves differences above {} here.",
            resolved.join(" and ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, passed: bool, resolves_pct: Option<(String, f64)>) -> Check {
        Check {
            name: name.to_owned(),
            goal: String::new(),
            measured: String::new(),
            passed,
            resolves_pct,
        }
    }

    #[test]
    fn conclusion_names_failed_checks_and_resolution() {
        let delay = check("delay", true, Some(("delay".to_owned(), 4.06)));
        let cpu = check("CPU", true, Some(("CPU".to_owned(), 2.0)));
        assert_eq!(
            conclusion(&[delay.clone(), cpu]),
            "This machine can measure: all 2 checks passed.\n\
             A quick experiment resolves differences above 4.1 % in delay and 2.0 % in CPU here."
        );
        let text = conclusion(&[delay, check("generator gaps", false, None)]);
        assert!(text.starts_with("This machine fails 1 of 2 checks: generator gaps."));
    }

    #[test]
    fn every_check_can_be_asked_for() {
        assert_eq!(arguments::CHECKS, selftest::NAMES);
    }
}
