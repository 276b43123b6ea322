//! What became of the frames: one end each, so that the ends' sum is all that came.

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::Error;

/// Frames and their bytes, as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
}

macro_rules! ends {
    ($($(#[$doc:meta])* $end:ident = $name:literal,)*) => {
        /// What becomes of a frame; `enum end` of bpf/layout.h.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum End {
            $($(#[$doc])* $end,)*
        }

        impl End {
            /// All of them, in the program's order.
            pub const ALL: &[Self] = &[$(Self::$end),*];

            /// As counters are named.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$end => $name,)*
                }
            }
        }
    };
}

ends! {
    Forwarded = "forwarded",
    /// A rule says so.
    DroppedByRule = "dropped-by-rule",
    /// Its route leads nowhere.
    DroppedByRoute = "dropped-by-route",
    /// The device that it leaves by is gone, or has no room for a VLAN tag.
    DroppedAtDevice = "dropped-at-device",
    /// For this host; this and all that follow are left to the kernel.
    Local = "local",
    /// Its route says that it is answered with an error.
    Refused = "refused",
    Unresolved = "unresolved",
    /// It leaves by a device that only the kernel can send by.
    RouteDevice = "route-device",
    NoRoute = "no-route",
    /// The next hop of its route was never given a meaning.
    NoMeaning = "no-meaning",
    /// A rule leaves it to the kernel.
    PuntedByRule = "punted-by-rule",
    /// Rules look at ports, which a fragment or an unknown extension header hides.
    Unkeyed = "unkeyed",
    /// The rules did not come to an end within the steps that a lookup may take.
    RulesUnfinished = "rules-unfinished",
    TtlExpired = "ttl-expired",
    TooLong = "too-long",
    /// IPv4 options, IPv6 hop-by-hop options.
    Options = "options",
    NotUnicast = "not-unicast",
    NotIp = "not-ip",
    Malformed = "malformed",
    Martian = "martian",
    /// For another link-layer address, or with VLAN tags that no port has.
    NotOurs = "not-ours",
    /// The routes changed during each attempt to look the address up.
    Busy = "busy",
}

impl End {
    /// Whether the kernel gets the frame.
    pub fn is_punt(self) -> bool {
        self as usize >= Self::Local as usize
    }
}

/// What became of all frames since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    ends: Vec<Traffic>,
}

impl Counters {
    pub(super) fn read(map: &MapHandle) -> Result<Self, Error> {
        let cpus = map
            .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::kernel("reading the counters"))?;
        let mut ends = vec![Traffic::default(); End::ALL.len()];
        for cpu in cpus.iter().flatten() {
            let (words, _) = cpu.as_chunks::<16>();
            for (sum, one) in ends.iter_mut().zip(words) {
                let (halves, _) = one.as_chunks::<8>();
                sum.packets += u64::from_ne_bytes(halves[0]);
                sum.bytes += u64::from_ne_bytes(halves[1]);
            }
        }
        Ok(Self { ends })
    }

    /// The frames that came to this end.
    pub fn get(&self, end: End) -> Traffic {
        self.ends.get(end as usize).copied().unwrap_or_default()
    }

    /// All frames.
    pub fn received(&self) -> Traffic {
        self.ends
            .iter()
            .fold(Traffic::default(), |sum, end| Traffic {
                packets: sum.packets + end.packets,
                bytes: sum.bytes + end.bytes,
            })
    }

    /// Each end with its frames.
    pub fn iter(&self) -> impl Iterator<Item = (End, Traffic)> + '_ {
        End::ALL.iter().map(|end| (*end, self.get(*end)))
    }
}
