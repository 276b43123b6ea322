//! The settings with which the kernel's programs are loaded.

use datapath::Error;

use super::skel::{flow, flow_tc, hand_over, packets};
use super::wakeup::Wakeup;
use crate::dissect::Tunnels;
use crate::filter::Unit;
use crate::options::Options;

/// The maximum number of first packets per flow that the kernel keeps individually: FLOW_STEPS of flow.h.
const MAX_STEPS: usize = 10;

/// The verdict on a frame after it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Pass the frame to the network stack.
    #[default]
    Inline,
    /// Drop the frame. This is for input that is a copy of the traffic.
    Tap,
}

/// The source of a packet's time and wire length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The kernel's clock and the frame itself.
    #[default]
    Kernel,
    /// Metadata beside the frame, for tests: at XDP a `struct metadata` in front of it.
    Metadata,
}

/// Sets the knobs that both kinds of flow programs share. A macro, because each has its own structure type.
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

/// The settings of the kernel's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub options: Options,
    pub verdict: Verdict,
    pub clock: Clock,
    pub wakeup: Wakeup,
    /// At tc: the device's frames begin with the IP header.
    pub raw: bool,
    /// Merge the parts of a flow from several CPUs into one row. This costs a lookup in every other table for each flow
    /// that ends. It is unnecessary if both directions arrive on one CPU.
    pub merge: bool,
    /// The CPUs to which flows are steered in both directions. If empty, each CPU counts the packets that it receives.
    pub steer: Vec<u32>,
    /// The queue length of each of these CPUs in frames, at most 16384.
    pub steer_waiting: u32,
    /// The maximum number of open flows per CPU. The memory is allocated at the start.
    pub flows_per_cpu: u32,
    /// Bytes of the ring of ended flows, or of each ring of packets: a power of two, at least a page.
    pub ring_bytes: u32,
    /// The number of readers that share the packets' flows, at least 1. Each has a ring on each CPU.
    pub readers: u32,
    /// Whether flows can be classified by a model. Without it, the program contains no code for models.
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

/// Sets the knobs of the selection. A macro, because each program has its own structure type.
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
    /// Checks that the kernel supports these settings for flows.
    pub fn check(&self) -> Result<(), Error> {
        self.check_packets()?;
        if self.options.limits.steps > MAX_STEPS {
            return refuse(
                "the kernel keeps a flow's first 10 packets; xdp-ringbuf and pcap keep more",
            );
        }
        Ok(())
    }

    /// Checks that the kernel supports these settings for packets.
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
    /// The number in `enum xdp_action`.
    fn xdp(self) -> u32 {
        match self {
            Self::Tap => 1,
            Self::Inline => 2,
        }
    }

    /// `TC_ACT_SHOT`, or `TC_ACT_UNSPEC`, which passes the frame to the next program.
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
