//! The forwarding path of a stream, as its tables set it, and the path of its copies.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use datapath::Error;
use libbpf_rs::MapHandle;

use super::super::skel::types;
use super::super::{entries, grace, groups};
use super::{InstalledStream, Tables, installed};
use crate::handover::{FastPath, ForwardingPath};
use crate::plan::{StreamId, Subscriber, SubscriberId};

/// The program takes nothing over before userspace has published its count for the first time.
const NOT_STARTED: u64 = u64::MAX;

impl Tables {
    pub(super) fn start_handover(&self, stream: StreamId) -> Result<(), Error> {
        self.maps.done.set(&stream.0, &NOT_STARTED)?;
        let divert = types::divert::default();
        Ok(self.maps.diverts.set(&stream.0, &divert)?)
    }

    fn divert(&self, stream: StreamId) -> Result<types::divert, Error> {
        Ok(self.maps.diverts.get(&stream.0)?.unwrap_or_default())
    }

    pub(super) fn current_path(
        &self,
        stream: StreamId,
        installed: &InstalledStream,
    ) -> Result<ForwardingPath, Error> {
        Ok(match installed.path {
            ForwardingPath::Diverted if self.divert(stream)?.taken_over == 1 => {
                ForwardingPath::Fast
            }
            path => path,
        })
    }
}

impl FastPath for Tables {
    fn forwarding_path(&self, stream: StreamId) -> Result<ForwardingPath, Error> {
        let state = self.state();
        self.current_path(stream, installed(&state, stream)?)
    }

    fn pass(&self, stream: StreamId) -> Result<(), Error> {
        let mut state = self.state();
        let group = installed(&state, stream)?.group.index;
        if let Some(installed) = state.streams.get_mut(&stream.0) {
            let entry = entries::stream(&installed.plan, group, ForwardingPath::Passing, false);
            self.maps.streams.set(&stream.0, &entry)?;
            installed.path = ForwardingPath::Passing;
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
        let installed = state.streams.get(&stream.0);
        let installed = installed.filter(|installed| installed.path != ForwardingPath::Passing);
        installed.map_or_else(BTreeSet::new, |installed| {
            installed.userspace_only.keys().copied().collect()
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
        let installed = installed(&state, stream).ok()?;
        if let Some(policy) = &installed.plan.policy {
            return Some(format!("left to the kernel: {policy}"));
        }
        let reason = installed.userspace_only.get(&subscriber)?.as_ref()?;
        Some(format!("userspace sends to it: {reason}"))
    }

    fn unattached(&self, stream: StreamId) -> BTreeMap<u32, String> {
        let state = self.state();
        let Some(installed) = state.streams.get(&stream.0) else {
            return BTreeMap::new();
        };
        let of_stream =
            |(ifindex, _): &(&u32, &String)| installed.plan.interfaces.contains(ifindex);
        let unattached = state.unattached.iter().filter(of_stream);
        unattached
            .map(|(ifindex, reason)| (*ifindex, reason.clone()))
            .collect()
    }

    fn last_copy(&self, stream: StreamId) -> Option<String> {
        let state = self.state();
        let installed = installed(&state, stream).ok()?;
        let device = |subscriber: &Subscriber| state.devices.get(&groups::egress(subscriber)?);
        let (last, device) = (installed.plan.subscribers.iter())
            .filter_map(|subscriber| Some((subscriber, device(subscriber)?)))
            .filter(|(_, device)| device.slow.is_none())
            .max_by_key(|(subscriber, _)| groups::egress(subscriber))?;
        let path = device.path_to(last, installed.is_settled())?;
        Some(format!("{} {path}", last.destination))
    }
}
