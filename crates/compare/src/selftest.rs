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
    if arguments.json {
        print::line(format_args!("{}", serde_json::to_string_pretty(&checks)?))?;
    }
    if checks.iter().all(|check| check.passed) {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(crate::exit_code(ErrorClass::Failed))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_check_can_be_asked_for() {
        assert_eq!(arguments::CHECKS, experiment::selftest::NAMES);
    }
}
