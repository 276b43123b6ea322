//! The peers of a dump: whose paths there are, and whose are asked for.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use foldhash::fast::RandomState;

use super::Best;
use super::attributes::Attributes;
use super::cursor::{Cursor, RecordError};
use crate::budget::{Budget, Exhaustion};
use crate::error::{Fault, Place};
use crate::routes::{Peer, PeerChoice};

/// Memory of a peer: it is in a list and a map, which grow.
const PEER: usize = 4 * size_of::<Peer>();

pub(super) struct Peers<'a> {
    choice: PeerChoice,
    budget: &'a Budget,
    all: Vec<Peer>,
    places: HashMap<(IpAddr, u32), u32, RandomState>,
    /// Places of the peers that paths name by number. Some daemons write a table of peers for each of their tables.
    table: Option<Vec<u32>>,
}

impl<'a> Peers<'a> {
    pub(super) fn new(choice: PeerChoice, budget: &'a Budget) -> Self {
        Self {
            choice,
            budget,
            all: Vec::new(),
            places: HashMap::default(),
            table: None,
        }
    }

    /// The table of peers for the paths that follow.
    pub(super) fn read_table(&mut self, mut body: Cursor<'_>) -> Result<(), RecordError> {
        body.take(4, "collector")?;
        let name = body.u16("length of the view's name")?;
        body.take(usize::from(name), "name of the view")?;
        let count = body.u16("number of peers")?;
        let mut table = Vec::with_capacity(usize::from(count).min(body.remaining()));
        for _ in 0..count {
            let kind = body.u8("type of a peer")?;
            body.take(4, "identifier of a peer")?;
            let as_bytes = if kind & 2 == 0 { 2 } else { 4 };
            table.push(self.read(&mut body, kind & 1 != 0, as_bytes)?);
        }
        self.table = Some(table);
        Ok(())
    }

    /// A peer's address and AS; returns its place.
    pub(super) fn read(
        &mut self,
        body: &mut Cursor<'_>,
        v6: bool,
        as_bytes: usize,
    ) -> Result<u32, RecordError> {
        let address = if v6 {
            IpAddr::V6(Ipv6Addr::from(body.array::<16>("address of a peer")?))
        } else {
            IpAddr::V4(Ipv4Addr::from(body.array::<4>("address of a peer")?))
        };
        let autonomous_system = if as_bytes == 2 {
            u32::from(body.u16("AS of a peer")?)
        } else {
            u32::from_be_bytes(body.array("AS of a peer")?)
        };
        let place = self.add(address, autonomous_system);
        place.map_err(|exhausted| body.error(&exhausted.to_string()))
    }

    /// Places of the peers that paths name by number, once there is a table of them.
    pub(super) fn table(&self) -> Option<&[u32]> {
        self.table.as_deref()
    }

    /// What a peer's path comes to by itself.
    pub(super) fn best(&self, peer: u32, attributes: Attributes<'_>) -> Result<Best, RecordError> {
        if !self.wanted(&self.all[peer as usize]) {
            return Ok(Best::NotAsked);
        }
        let path = attributes.path()?;
        Ok(path.map_or(Best::NoNextHop, |path| Best::Path(path, peer)))
    }

    /// Counts a prefix whose path is this peer's.
    pub(super) fn count(&mut self, peer: u32) {
        self.all[peer as usize].taken += 1;
    }

    pub(super) fn finish(self) -> Result<Vec<Peer>, Fault> {
        let fault = |what: String| Err(Fault::new(Place::File, what));
        if self.all.is_empty() && self.table.is_none() {
            return fault("no table of peers: this is no RIB dump".to_owned());
        }
        if self.all.is_empty() || self.all.iter().any(|peer| self.wanted(peer)) {
            return Ok(self.all);
        }
        let some: Vec<String> = self.all.iter().take(8).map(name).collect();
        let more = if self.all.len() > 8 { ", ..." } else { "" };
        let some = some.join(", ");
        fault(format!("no such peer in the dump; its peers: {some}{more}"))
    }

    fn add(&mut self, address: IpAddr, autonomous_system: u32) -> Result<u32, Exhaustion> {
        let key = (address, autonomous_system);
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        self.budget.hold(PEER)?;
        let place = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.places.insert(key, place);
        self.all.push(Peer {
            address,
            autonomous_system,
            taken: 0,
        });
        Ok(place)
    }

    fn wanted(&self, peer: &Peer) -> bool {
        match self.choice {
            PeerChoice::ShortestPath => true,
            PeerChoice::Address(address) => peer.address == address,
            PeerChoice::As(autonomous_system) => peer.autonomous_system == autonomous_system,
        }
    }
}

fn name(peer: &Peer) -> String {
    format!("{} (AS {})", peer.address, peer.autonomous_system)
}
