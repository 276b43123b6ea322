//! Which arms run under which loads, and why others do not.

use datapath::Missing;

use super::{BARE, DELAYED_FLOOR, NULL_PROBE};
use crate::arms::ProgramArm;
use crate::environment::NATIVE;
use crate::jobs::relay::load::{Load, Measure, Scope};
use crate::placement::Placement;

/// Why `arm` does not run under `load` on a machine with this many CPUs.
pub(super) fn applies(
    arm: &str,
    load: &Load,
    measure: Measure,
    cpus: usize,
) -> Result<(), Missing> {
    let refuse = |what: &str, remedy: &str| Err(Missing::new(what, remedy));
    let one_copy = load.subscribers == 1;
    let application = load.scope == Scope::Application;
    match arm {
        arm if BARE.contains(&arm) && !one_copy => refuse(
            "without a relay there is one copy only",
            "see the loads with N=1",
        ),
        DELAYED_FLOOR if measure != Measure::Delay => refuse(
            "it adds a known delay and changes nothing else",
            "see the loads whose delay is measured",
        ),
        NULL_PROBE if !application => refuse(
            "probes that do not stamp packets cannot measure delay",
            "see the loads with the scope application",
        ),
        "busy" if application && cpus <= 2 => refuse(
            "it would take the CPU that the receiving application wakes up on",
            "see the loads without the scope application, or use a machine with three CPUs",
        ),
        arm if has_work(load) && !relay::userspace::has(arm) => refuse(
            "work on each packet is done in userspace: the fast path does not apply",
            "see the load work=0us, or choose a userspace datapath for such streams",
        ),
        _ => Ok(()),
    }
}

/// Why an external program does not relay under `load`.
pub(super) fn program_applies(
    program: &ProgramArm,
    load: &Load,
    measure: Measure,
) -> Result<(), Missing> {
    let refuse = |what: &str, remedy: &str| Err(Missing::new(what, remedy));
    if measure == Measure::Change {
        return refuse(
            "only lowroad's own relay is asked to change its subscribers",
            "see the loads that are measured otherwise",
        );
    }
    if has_work(load) {
        return refuse(
            "work and fec are settings of lowroad's own relay",
            "see the loads without them",
        );
    }
    if load.subscribers > 1 && !program.uses("subscribers") {
        return refuse(
            "it is set up for one receiver",
            "use {subscribers} in its commands, or see the loads with N=1",
        );
    }
    Ok(())
}

/// Environments where a relay has the files of this machine.
const SHARED_FILES: [&str; 2] = [NATIVE, "oci"];
/// The environment where each program has files of its own.
const CONTAINER_IN_GUEST: &str = "vm-oci";

/// Why `arm` is not measured so under `load` where the relay is elsewhere, with what it has of its own there.
pub(super) fn applies_in(
    arm: &str,
    load: &Load,
    measure: Measure,
    placement: &Placement,
) -> Result<(), Missing> {
    if SHARED_FILES.contains(&placement.environment) || BARE.contains(&arm) {
        return Ok(());
    }
    if placement.environment == CONTAINER_IN_GUEST {
        return Err(Missing::new(
            "in a container in a guest, programs share no files, so none can read the relay's counters",
            "place the relay in vm, or in a container of this machine",
        ));
    }
    match (measure, load.jitter) {
        (Measure::Change, _) => Err(Missing::new(
            "its control socket is not on this machine, so the time of a change would include a program's start",
            "measure changes in native or oci",
        )),
        (_, Some(_)) if placement.guest => Err(Missing::new(
            "a virtual machine has direct links and bridges, but no impaired links",
            "see the loads without jitter",
        )),
        _ => Ok(()),
    }
}

/// Whether the relay does more with each packet than forward it.
fn has_work(load: &Load) -> bool {
    load.options.iter().any(|(key, value)| match key.as_str() {
        "work" => value.as_str() != Some("0us"),
        key => key == "fec",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::JobBench as _;
    use crate::jobs::relay::{FLOOR, RelayBench};

    fn load(subscribers: usize, scope: Scope) -> Load {
        Load {
            scope,
            ..Load::paced("200B", "10kpps", subscribers, "1s").unwrap()
        }
    }

    #[test]
    fn arms_run_where_they_mean_something() {
        let stamps =
            |arm, n| applies(arm, &load(n, Scope::StampToStamp), Measure::Delay, 2).is_ok();
        let application =
            |arm, cpus| applies(arm, &load(1, Scope::Application), Measure::Delay, cpus).is_ok();
        assert!(stamps("xdp", 16) && stamps("busy", 16));
        assert!(stamps(FLOOR, 1) && !stamps(FLOOR, 4));
        assert!(stamps(DELAYED_FLOOR, 1) && !stamps(DELAYED_FLOOR, 4));
        let cpu = load(1, Scope::StampToStamp);
        assert!(applies(DELAYED_FLOOR, &cpu, Measure::Cpu, 2).is_err());
        assert!(!stamps(NULL_PROBE, 1) && application(NULL_PROBE, 2));
        let work = |arm, text: &str| {
            let options = toml::from_str(text).unwrap();
            let load = Load {
                options,
                ..load(1, Scope::StampToStamp)
            };
            applies(arm, &load, Measure::Delay, 2).is_ok()
        };
        assert!(work("xdp", "work = \"0us\"") && work("recv", "work = \"50us\""));
        assert!(!work("tc", "work = \"50us\"") && !work("xdp", "fec = { group = 10 }"));
        assert!(!application("busy", 2) && application("busy", 4));
    }

    #[test]
    fn program_relays_to_as_many_receivers_as_it_asks_for() {
        let program = |to: &str| {
            let text = format!(
                "command = [\"relay\", \"{{listen}}\", \"{to}\"]\nready = {{ udp = \"{{port}}\" }}\n"
            );
            program(&text)
        };
        let applies = |program: &ProgramArm, subscribers, measure| {
            let load = load(subscribers, Scope::StampToStamp);
            program_applies(program, &load, measure).is_ok()
        };
        let (one, all) = (program("{subscriber}"), program("{subscribers}"));
        assert!(applies(&one, 1, Measure::Delay) && !applies(&one, 2, Measure::Delay));
        assert!(applies(&all, 16, Measure::Throughput));
        assert!(
            !applies(&all, 1, Measure::Change),
            "it has no control socket"
        );
    }

    /// The arm that a file states.
    fn program(text: &str) -> ProgramArm {
        let document = control::config::Document::new("mine.toml", text);
        let arms = RelayBench::arms();
        let rules = crate::catalog::job("relay").unwrap().program_rules(&arms);
        ProgramArm::read(&document, Some("mine"), &rules).unwrap()
    }
}
