//! What a next hop's number stands for in a running router, and what every data plane can be told.
//! Where routes and neighbours come from is decided elsewhere.

use lpm::{NextHop, Prefix4, Prefix6};

use crate::rules::RuleSet;

/// What becomes of a packet whose lookup gave a next hop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Forwarding {
    /// Sent to a neighbour.
    Neighbour(Adjacency),
    /// Sent by one of these next hops of the same family, which a hash of the flow chooses: ECMP.
    /// None of them is a group.
    Group(Vec<Member>),
    /// Dropped without a word.
    Drop,
    /// Left to the kernel.
    Punt(Punt),
}

/// A neighbour whose link-layer address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Adjacency {
    /// The device that frames leave by; of a VLAN device, the one below it.
    pub ifindex: u32,
    /// That device's link-layer address.
    pub source: [u8; 6],
    /// The neighbour's link-layer address.
    pub destination: [u8; 6],
    /// The VLAN id that frames get.
    pub vlan: Option<u16>,
    /// The longest IP packet that fits, in bytes; longer ones are the kernel's to fragment or refuse.
    pub mtu: u32,
}

/// One way of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    pub hop: NextHop,
    /// Its part of the group's flows, from 1.
    pub weight: u16,
}

/// Why the kernel has to see a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Punt {
    /// It is for this host, or a broadcast.
    Local,
    /// It must be answered with an ICMP error.
    Refused,
    /// The neighbour's link-layer address is not known: the kernel resolves it.
    Unresolved,
    /// It leaves by a device that only the kernel can send by: a tunnel, a bridge.
    Device,
}

/// The IP versions, each of which numbers its next hops by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    V4,
    V6,
}

/// A data plane while it runs. A packet is handled as before or as after each call, never between.
pub trait Plane {
    /// Why a change could not be made; the plane then goes on as before.
    type Error: std::error::Error + Send + Sync + 'static;
    /// Compiled rules.
    type RuleTables: Send;

    /// Routes a prefix to a next hop, or withdraws it.
    ///
    /// # Errors
    /// No room.
    fn route4(&mut self, prefix: Prefix4, hop: Option<NextHop>) -> Result<(), Self::Error>;

    /// As `route4`.
    ///
    /// # Errors
    /// As `route4`.
    fn route6(&mut self, prefix: Prefix6, hop: Option<NextHop>) -> Result<(), Self::Error>;

    /// Gives a next hop its meaning. One that was never given a meaning is left to the kernel.
    ///
    /// # Errors
    /// A device that the plane cannot send by.
    fn next_hop(
        &mut self,
        family: Family,
        hop: NextHop,
        to: &Forwarding,
    ) -> Result<(), Self::Error>;

    /// Leaves all packets of a family to the kernel for as long as it lacks routes that it had no room for, and that
    /// others would answer for.
    ///
    /// A plane to which no packets come has none to leave.
    ///
    /// # Errors
    /// The plane's.
    fn withhold(&mut self, _family: Family, _on: bool) -> Result<(), Self::Error> {
        Ok(())
    }

    /// A compiler of rules. It can run for seconds, and does not need the plane.
    fn compiler(&self) -> Compiler<Self::RuleTables, Self::Error>;

    /// Filters by these rules instead of those before. The returned cleanup may run later, without the plane,
    /// but must have run before the next rules are put in force.
    ///
    /// # Errors
    /// No room; the rules before still hold.
    fn enforce(&mut self, compiled: Self::RuleTables) -> Result<Cleanup, Self::Error>;

    /// Compiles rules and filters by them.
    ///
    /// # Errors
    /// No room; the rules before still hold.
    fn rules(&mut self, rules: &RuleSet) -> Result<(), Self::Error> {
        let compiled = self.compiler()(rules)?;
        self.enforce(compiled)?();
        Ok(())
    }
}

/// Compiles rules for a plane.
pub type Compiler<Tables, Error> = Box<dyn FnOnce(&RuleSet) -> Result<Tables, Error> + Send>;

/// The rest of a change, which may be done later.
pub type Cleanup = Box<dyn FnOnce() + Send>;

/// A cleanup that does nothing.
pub fn no_cleanup() -> Cleanup {
    Box::new(|| ())
}
