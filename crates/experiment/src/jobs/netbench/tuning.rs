//! How the two ends of an arm are tuned: a factor of its own beside environment, kernel and link, so that
//! each can be told from the others. An arm's name is followed by what it is tuned by: `oci/direct+busy-poll`.

use std::process::Command;

use anyhow::{Context, Result};
use datapath::Missing;
use netbench::Test;
use testbed::{Kind, Program};

use super::arm::{Arm, Place};
use super::tool::Tool;
use crate::cpus;
use crate::jobs::netbench::load::Load;

/// Between an arm's name and each tuning.
const PLUS: char = '+';
/// How long a read looks for packets before it sleeps.
const BUSY_POLL: &str = "50us";
/// The command that gives a program the scheduling policy `SCHED_FIFO`: first come, first served.
const REAL_TIME: [&str; 3] = ["chrt", "--fifo", "10"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tuning {
    /// Both ends run where the scheduler puts them: elsewhere they are kept to their CPUs.
    Unpinned,
    /// Reads look for packets themselves before they sleep.
    BusyPoll,
    /// Both ends go before all ordinary processes.
    RealTime,
    /// On CPUs that the scheduler leaves alone.
    Isolated,
    /// A virtual machine's memory is in huge pages.
    HugePages,
}

/// An arm, as an experiment names it.
#[derive(Clone, Debug)]
pub(super) struct TunedArm {
    pub(super) arm: &'static Arm,
    pub(super) tunings: Vec<Tuning>,
}

impl Tuning {
    pub(super) const ALL: [Self; 5] = [
        Self::Unpinned,
        Self::BusyPoll,
        Self::RealTime,
        Self::Isolated,
        Self::HugePages,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unpinned => "unpinned",
            Self::BusyPoll => "busy-poll",
            Self::RealTime => "real-time",
            Self::Isolated => "isolated",
            Self::HugePages => "huge-pages",
        }
    }

    fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tuning| tuning.name() == name)
    }

    /// Why it cannot be set here, or means nothing for the arm.
    fn check(self, arm: &Arm) -> Result<(), Missing> {
        let refuse = |what: &str, remedy: &str| Err(Missing::new(what, remedy));
        let guest = Kind::find(arm.env).is_some_and(|kind| kind.guest);
        match self {
            Self::Unpinned | Self::Isolated if arm.place != Place::Apart => refuse(
                "the arm itself names its CPUs",
                "native/direct, or the arm of an environment",
            ),
            Self::Unpinned => Ok(()),
            Self::BusyPoll if arm.tool != Tool::Lowroad => refuse(
                "only our own tool polls by an option of its own",
                "native/direct+busy-poll",
            ),
            Self::BusyPoll => Ok(()),
            Self::RealTime => crate::program::program("chrt", "apt-get install util-linux"),
            Self::Isolated => match isolated()?.len() {
                2.. => Ok(()),
                count => refuse(
                    &format!("{count} CPUs are isolated from the scheduler, and two ends need two"),
                    "boot the machine with isolcpus=A,B nohz_full=A,B rcu_nocbs=A,B: CPUs cannot be isolated later",
                ),
            },
            Self::HugePages if !guest => refuse(
                "only a virtual machine has enough memory for a difference",
                "vm/direct+huge-pages",
            ),
            Self::HugePages => testbed::huge_pages(),
        }
    }
}

impl TunedArm {
    pub(super) fn find(name: &str) -> Option<Self> {
        let mut words = name.split(PLUS);
        let arm = Arm::find(words.next()?)?;
        let tunings: Option<Vec<_>> = words.map(Tuning::find).collect();
        Some(Self {
            arm,
            tunings: tunings?,
        })
    }

    pub(super) fn known(name: &str) -> Result<Self> {
        Self::find(name).with_context(|| format!("no arm {name}"))
    }

    pub(super) fn has(&self, tuning: Tuning) -> bool {
        self.tunings.contains(&tuning)
    }

    pub(super) fn check(&self) -> Result<(), Missing> {
        if self.has(Tuning::Unpinned) && self.has(Tuning::Isolated) {
            let what = "isolated pins both ends, so it excludes unpinned";
            return Err(Missing::new(what, "name one of the two"));
        }
        self.arm.check()?;
        self.tunings
            .iter()
            .try_for_each(|tuning| tuning.check(self.arm))
    }

    /// Why the arm or its tool, with its tunings, cannot run a load.
    pub(super) fn lacks(&self, test: Test, load: &Load) -> Option<String> {
        let echoes = self.has(Tuning::BusyPoll) && !test.can_busy_poll();
        let polls = || Some("has no socket that could poll for echoes".to_owned());
        let arm = self.arm.lacks(test, load);
        arm.or_else(|| self.arm.tool.lacks(test, load))
            .or_else(|| echoes.then(polls).flatten())
    }

    /// The CPUs of the client and of the server; none where they may run on any.
    pub(super) fn cpus(&self) -> [Vec<usize>; 2] {
        if self.has(Tuning::Unpinned) {
            return [Vec::new(), Vec::new()];
        }
        let apart = isolated().unwrap_or_default();
        match (self.has(Tuning::Isolated), apart.as_slice()) {
            (true, [client, .., server]) => [vec![*client], vec![*server]],
            _ => self.arm.cpus(),
        }
    }

    /// The CPUs that any part of it runs on.
    pub(super) fn used(&self) -> Vec<usize> {
        self.arm.used(self.cpus())
    }

    /// The server's capabilities for the tunings.
    pub(super) fn capabilities(&self) -> Vec<&'static str> {
        let asked = [
            (Tuning::BusyPoll, "CAP_NET_ADMIN"),
            (Tuning::RealTime, "CAP_SYS_NICE"),
        ];
        let asked = asked.into_iter().filter(|(tuning, _)| self.has(*tuning));
        asked.map(|(_, capability)| capability).collect()
    }

    /// The server as it is tuned.
    pub(super) fn server(&self, program: Program) -> Program {
        let program = program.may(&self.capabilities());
        match self.has(Tuning::RealTime) {
            true => program.under(&REAL_TIME),
            false => program,
        }
    }

    /// The client as it is tuned; its options come last.
    pub(super) fn client(&self, command: Command) -> Command {
        let mut command = match self.has(Tuning::RealTime) {
            true => under(&REAL_TIME, &command),
            false => command,
        };
        if self.has(Tuning::BusyPoll) {
            command.args(["--busy-poll", BUSY_POLL]);
        }
        command
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        self.tunings.iter().map(|tuning| tuning.name()).collect()
    }
}

/// The command as another starts it.
fn under(words: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(words[0]);
    outer.args(&words[1..]);
    outer.arg(command.get_program()).args(command.get_args());
    outer
}

/// The CPUs that nothing runs on but what is put there.
fn isolated() -> Result<Vec<usize>, Missing> {
    cpus::isolated().map_err(|cause| Missing::new(cause.to_string(), "leave the arm out"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::loads_of;

    #[test]
    fn an_arm_is_followed_by_what_it_is_tuned_by() {
        let tuned = TunedArm::find("oci/bridge+busy-poll+real-time").unwrap();
        assert_eq!(tuned.arm.name, "oci/bridge");
        assert_eq!(tuned.names(), ["busy-poll", "real-time"]);
        assert!(TunedArm::find("native/direct").unwrap().tunings.is_empty());
        for unknown in [
            "native/direct+",
            "native/direct+warp",
            "warp+busy-poll",
            "+busy-poll",
        ] {
            assert!(TunedArm::find(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn what_means_nothing_for_an_arm_is_refused() {
        let why = |name: &str| {
            let TunedArm { arm, tunings } = TunedArm::find(name).unwrap();
            let found = tunings[0].check(arm);
            found.map_or_else(|missing| missing.what, |()| String::new())
        };
        assert!(why("same-cpu+unpinned").contains("its CPUs"));
        assert!(why("iperf3+busy-poll").contains("our own tool"));
        assert!(why("native/direct+huge-pages").contains("virtual machine"));
        assert_eq!(why("oci/direct+unpinned"), "");
        let both = TunedArm::find("native/direct+unpinned+isolated").unwrap();
        assert!(both.check().unwrap_err().what.contains("excludes unpinned"));
        let mut load = loads_of::<Load>("netbench-matrix").remove(0);
        load.options = toml::from_str("test = 'icmp'").unwrap();
        let tuned = TunedArm::find("native/direct+busy-poll").unwrap();
        assert!(tuned.lacks(Test::Icmp, &load).unwrap().contains("poll"));
        assert_eq!(tuned.lacks(Test::TcpRr, &load), None);
    }

    #[test]
    fn tunings_change_what_is_started_and_where() {
        let tuned = TunedArm::find("native/direct+busy-poll+real-time+unpinned").unwrap();
        let mut command = Command::new("lowroad");
        command.arg("run");
        let words: Vec<_> = {
            let command = tuned.client(command);
            let program = command.get_program().to_owned();
            [program]
                .into_iter()
                .chain(command.get_args().map(Into::into))
                .collect()
        };
        assert_eq!(
            words.join(" ".as_ref()),
            "chrt --fifo 10 lowroad run --busy-poll 50us"
        );
        let server = tuned.server(Program::new("serve").args(["--listen"]));
        assert_eq!(
            server.words().join(" ".as_ref()),
            "chrt --fifo 10 serve --listen"
        );
        assert!(tuned.cpus().iter().all(Vec::is_empty));
    }
}
