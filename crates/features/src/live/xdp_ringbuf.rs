//! The `xdp-ringbuf` datapath: the kernel reads headers and records each packet, flows are kept here.

use datapath::{Datapath, Error, Missing};
use netdev::XdpMode;
use sys::capture::Promiscuous;

use super::kernel::{self, Hook};
use super::worker::{Capturing, Workers, now_ns};
use super::{Features, LiveCounters, Plan, Running};
use crate::keep::Keeper;
use crate::kernel::{Account, PacketPlane, Wakeup};

/// A packet this young may be overtaken by one that another CPU is just writing.
const YOUNG_NS: i64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct XdpRingbuf;

impl Datapath<Features> for XdpRingbuf {
    fn name(&self) -> &'static str {
        "xdp-ringbuf"
    }

    fn check(&self) -> Result<(), Missing> {
        kernel::check()
    }

    fn start(&self, plan: &Plan) -> Result<Running, Error> {
        self.check()?;
        plan.without_model(self.name())?;
        super::does_not_steer(self.name(), plan)?;
        let settings = kernel::settings(self.name(), Hook::Xdp, plan)?;
        let promiscuous = kernel::promiscuous(plan)?;
        let mut plane = PacketPlane::load(&settings)?;
        plane.attach(plan.ifindex, XdpMode::Native)?;
        let records = Records {
            plane,
            keeper: Keeper::new(plan.schema, &plan.options, (plan.sink)()),
            account: Account::default(),
            young_ns: match plan.wakeup {
                Wakeup::Every => 0,
                Wakeup::Adaptive | Wakeup::Timer(_) => YOUNG_NS,
            },
            _promiscuous: promiscuous,
        };
        Workers::start(self.name(), vec![records])
    }
}

#[derive(Debug)]
struct Records {
    plane: PacketPlane,
    keeper: Keeper,
    /// As it was last read.
    account: Account,
    /// What is younger waits in its ring.
    young_ns: i64,
    _promiscuous: Option<Promiscuous>,
}

impl Records {
    fn collect(&mut self, before_ns: i64) {
        let keeper = &mut self.keeper;
        self.plane
            .collect(before_ns, |packet| keeper.packet(packet));
    }
}

impl Capturing for Records {
    fn take(&mut self) -> Result<bool, String> {
        self.plane.wait().map_err(|error| error.to_string())?;
        self.collect(now_ns() - self.young_ns);
        Ok(false)
    }

    fn tick(&mut self, now_ns: i64) -> Result<(), String> {
        self.keeper.sweep(now_ns);
        self.keeper.flush();
        self.plane.set_clock().map_err(|error| error.to_string())
    }

    fn counters(&mut self) -> Result<LiveCounters, String> {
        let account = self.plane.account().map_err(|error| error.to_string())?;
        self.account = account;
        let (exported, rows) = (self.keeper.exported(), self.keeper.rows());
        Ok(kernel::counters(&account, exported, rows))
    }

    fn finish(mut self) -> (LiveCounters, Result<(), String>) {
        let detached = self.plane.detach();
        self.collect(i64::MAX);
        let account = detached.and_then(|()| self.plane.account());
        kernel::finish(account, &self.account, self.keeper.finish())
    }
}
