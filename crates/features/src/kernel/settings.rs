//! What the kernel's programs are told when they are loaded.

use datapath::Error;

use super::skel::{flow, flow_tc, hand_over, packets};
use super::wakeup::Wakeup;
use crate::dissect::Tunnels;
use crate::filter::Unit;
use crate::options::Options;

/// A flow's first packets that the kernel keeps one by one, at most: FLOW_STEPS of flow.h.
const MAX_STEPS: usize = 10;

/// What becomes of a frame after it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on to the network stack.
    #[default]
    Inline,
    /// It is dropped: what comes in is a copy, made for this.
    Tap,
}

/// Where a packet's time and length on the wire come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's clock and the frame.
    #[default]
    Kernel,
    /// What is told beside the frame, for tests: in XDP a `struct metadata` in front of it.
    Metadata,
}

/// Sets the knobs that both programs of flows have alike, as structures of two types.
macro_rules! tell_flows {
    ($settings:expr, $knobs:ident) => {{
        let positive = |time: i64| u64::try_from(time).unwrap_or(0);
        let Options {
            timers,
            limits,
            by_vlan,
            ignore_icmp_id,
            ref selection,
            ..
        } = $settings.options;
        $knobs.idle_ns = positive(timers.idle_ns);
        $knobs.active_ns = positive(timers.active_ns);
        $knobs.lingers = u8::from(timers.linger_ns.is_some());
        $knobs.linger_ns = positive(timers.linger_ns.unwrap_or(0));
        $knobs.active_gap_ns = timers.gaps.active_ns;
        $knobs.subflow_gap_ns = timers.gaps.subflow_ns;
        $knobs.bulk_gap_ns = timers.gaps.bulk_ns;
        $knobs.most_steps = u32::try_from(limits.steps).unwrap_or(u32::MAX);
        $knobs.early_packets = limits.early_packets.unwrap_or(0);
        $knobs.by_vlan = u8::from(by_vlan);
        $knobs.ignore_icmp_id = u8::from(ignore_icmp_id);
        $knobs.from_metadata = u8::from($settings.clock == Clock::Metadata);
        tell_selection!($knobs, selection);
        $knobs.wake_always = u8::from($settings.wakeup == Wakeup::Every);
        $knobs.with_models = u8::from($settings.models);
    }};
}

/// What the kernel's programs are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub options: Options,
    pub verdict: Verdict,
    pub clock: Clock,
    pub wakeup: Wakeup,
    /// At tc: frames of the device begin with an IP header.
    pub raw: bool,
    /// Make one row of what several CPUs have seen of a flow; costs a look at each other table for each
    /// flow that ends, and is not needed where both directions come in on one CPU.
    pub merge: bool,
    /// The CPUs to which both directions of a flow are brought; none: each CPU counts what it gets.
    pub steer: Vec<u32>,
    /// Frames that may wait for each of these CPUs, at most 16384.
    pub steer_waiting: u32,
    /// Flows at a time on each CPU, for which memory is taken at the start.
    pub flows_per_cpu: u32,
    /// The ring of ended flows, or each ring of packets: a power of two, at least a page.
    pub ring_bytes: u32,
    /// Who share the packets' flows, at least one: each has a ring on each CPU.
    pub readers: u32,
    /// Flows may be put before a model; without, nothing of that is in the program.
    pub models: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            options: Options::default(),
            verdict: Verdict::default(),
            clock: Clock::default(),
            wakeup: Wakeup::default(),
            raw: false,
            merge: true,
            steer: Vec::new(),
            steer_waiting: 8192,
            flows_per_cpu: 65_536,
            ring_bytes: 16 << 20,
            readers: 1,
            models: false,
        }
    }
}

/// Each program has a type of its own for what it is told.
macro_rules! tell_selection {
    ($knobs:ident, $selection:expr) => {
        if let Some(compiled) = $selection.compiled() {
            let rules = compiled.rules();
            $knobs.selecting = 1;
            $knobs.filtering = u8::from(compiled.program.is_some());
            $knobs.sample_flows = u8::from(rules.unit == Unit::Flows);
            $knobs.sample_seed = rules.seed;
            let gap_ns = compiled
                .limiter
                .as_ref()
                .map_or(0, |limiter| limiter.gap_ns);
            $knobs.limit_gap_ns = gap_ns.unsigned_abs();
            for (told, rate) in $knobs.sample_rates.iter_mut().zip(&compiled.rates) {
                (told.kept, told.of) = (rate.kept, rate.of);
            }
        }
    };
}

impl Settings {
    /// Refuses what the kernel cannot do for flows.
    pub fn check(&self) -> Result<(), Error> {
        self.check_packets()?;
        if self.options.limits.steps > MAX_STEPS {
            return refuse(
                "the kernel keeps a flow's first 10 packets; xdp-ringbuf and pcap keep more",
            );
        }
        Ok(())
    }

    /// Refuses what the kernel cannot do for packets.
    pub fn check_packets(&self) -> Result<(), Error> {
        if self.options.tunnels == Tunnels::Inner {
            return refuse("the kernel opens no tunnels; pcap, tpacket and recv do");
        }
        if !self.ring_bytes.is_power_of_two() || self.ring_bytes < 4096 {
            return refuse("a ring's size is a power of two, and at least a page");
        }
        Ok(())
    }

    pub(super) fn tell(&self, knobs: &mut flow::types::rodata) {
        tell_flows!(self, knobs);
        knobs.frame_verdict = self.verdict.xdp();
    }

    pub(super) fn tell_tc(&self, knobs: &mut flow_tc::types::rodata) {
        tell_flows!(self, knobs);
        knobs.raw_frames = u8::from(self.raw);
        knobs.frame_verdict = self.verdict.tc();
    }

    pub(super) fn tell_handing(&self, knobs: &mut hand_over::types::rodata) {
        knobs.by_vlan = u8::from(self.options.by_vlan);
        knobs.ignore_icmp_id = u8::from(self.options.ignore_icmp_id);
        knobs.frame_verdict = self.verdict.xdp();
        tell_selection!(knobs, self.options.selection);
    }

    pub(super) fn tell_packets(&self, knobs: &mut packets::types::rodata) {
        knobs.readers = self.readers;
        knobs.by_vlan = u8::from(self.options.by_vlan);
        knobs.ignore_icmp_id = u8::from(self.options.ignore_icmp_id);
        knobs.from_metadata = u8::from(self.clock == Clock::Metadata);
        knobs.frame_verdict = self.verdict.xdp();
        tell_selection!(knobs, self.options.selection);
        knobs.wake_always = u8::from(self.wakeup == Wakeup::Every);
    }
}

impl Verdict {
    /// As `enum xdp_action` numbers it.
    fn xdp(self) -> u32 {
        match self {
            Self::Tap => 1,
            Self::Inline => 2,
        }
    }

    /// `TC_ACT_SHOT`; or `TC_ACT_UNSPEC`, which leaves the frame to the next program.
    fn tc(self) -> u32 {
        match self {
            Self::Tap => 2,
            Self::Inline => (-1_i32).cast_unsigned(),
        }
    }
}

fn refuse(what: &str) -> Result<(), Error> {
    Err(Error::Plan(what.to_owned()))
}
