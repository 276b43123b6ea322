//! Who relays a stream now, switched by its tables, and which way its copies go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use datapath::Error;
use libbpf_rs::MapHandle;

use super::super::skel::types;
use super::super::{entries, grace, groups};
use super::{Carried, Tables, carried};
use crate::handover::{FastPath, Road};
use crate::plan::{StreamId, Subscriber, SubscriberId};

/// Nothing is taken over before userspace has first said how far it is.
const NEVER: u64 = u64::MAX;

impl Tables {
    pub(super) fn start_handover(&self, stream: StreamId) -> Result<(), Error> {
        self.maps.done.set(&stream.0, &NEVER)?;
        let divert = types::divert::default();
        Ok(self.maps.diverts.set(&stream.0, &divert)?)
    }

    fn divert(&self, stream: StreamId) -> Result<types::divert, Error> {
        Ok(self.maps.diverts.get(&stream.0)?.unwrap_or_default())
    }

    pub(super) fn road_of(&self, stream: StreamId, carried: &Carried) -> Result<Road, Error> {
        Ok(match carried.road {
            Road::Diverted if self.divert(stream)?.taken_over == 1 => Road::Fast,
            road => road,
        })
    }
}

impl FastPath for Tables {
    fn road(&self, stream: StreamId) -> Result<Road, Error> {
        let state = self.state();
        self.road_of(stream, carried(&state, stream)?)
    }

    fn pass(&self, stream: StreamId) -> Result<(), Error> {
        let mut state = self.state();
        let group = carried(&state, stream)?.group.index;
        if let Some(carried) = state.streams.get_mut(&stream.0) {
            let entry = entries::stream(&carried.plan, group, Road::Passing, false);
            self.maps.streams.set(&stream.0, &entry)?;
            carried.road = Road::Passing;
        }
        grace()
    }

    fn diverted(&self, stream: StreamId) -> Result<u64, Error> {
        self.divert(stream).map(|divert| divert.diverted)
    }

    fn publish_done(&self, stream: StreamId, datagrams: u64) -> Result<(), Error> {
        Ok(self.maps.done.set(&stream.0, &datagrams)?)
    }

    fn punts(&self) -> Result<MapHandle, Error> {
        MapHandle::try_from(&self.maps.punts)
            .map_err(|error| Error::failed("keeping the ring of punts", error))
    }

    fn userspace_only(&self, stream: StreamId) -> BTreeSet<SubscriberId> {
        let state = self.state();
        let carried = state.streams.get(&stream.0);
        let carried = carried.filter(|carried| carried.road != Road::Passing);
        carried.map_or_else(BTreeSet::new, |carried| {
            carried.userspace_only.keys().copied().collect()
        })
    }

    fn latched(&self, stream: StreamId) -> Option<SocketAddr> {
        let latch = self.maps.latches.get(&stream.0);
        entries::latch_holder(&latch.ok()??)
    }

    fn slow_reason(&self, stream: StreamId, subscriber: SubscriberId) -> Option<String> {
        let state = self.state();
        if let Some(reason) = state.refused.get(&stream.0) {
            return Some(format!("userspace relays the stream: {reason}"));
        }
        let carried = carried(&state, stream).ok()?;
        if let Some(policy) = &carried.plan.policy {
            return Some(format!("left to the kernel: {policy}"));
        }
        let reason = carried.userspace_only.get(&subscriber)?.as_ref()?;
        Some(format!("userspace sends to it: {reason}"))
    }

    fn unattached(&self, stream: StreamId) -> BTreeMap<u32, String> {
        let state = self.state();
        let Some(carried) = state.streams.get(&stream.0) else {
            return BTreeMap::new();
        };
        let of_stream = |(ifindex, _): &(&u32, &String)| carried.plan.interfaces.contains(ifindex);
        let unattached = state.unattached.iter().filter(of_stream);
        unattached
            .map(|(ifindex, reason)| (*ifindex, reason.clone()))
            .collect()
    }

    fn last_copy(&self, stream: StreamId) -> Option<String> {
        let state = self.state();
        let carried = carried(&state, stream).ok()?;
        let exit = |subscriber: &Subscriber| state.devices.get(&groups::egress(subscriber)?);
        let (last, exit) = (carried.plan.subscribers.iter())
            .filter_map(|subscriber| Some((subscriber, exit(subscriber)?)))
            .filter(|(_, exit)| exit.slow.is_none())
            .max_by_key(|(subscriber, _)| groups::egress(subscriber))?;
        let way = exit.way_to(last, carried.is_settled())?;
        Some(format!("{} {way}", last.destination))
    }
}
