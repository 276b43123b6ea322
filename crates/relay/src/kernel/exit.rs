//! What a fast path can do with an egress device, and which way that sends a subscriber's copies.

use netdev::NextHop;
use netdev::capability::PeerDelivery;

use crate::plan::Subscriber;

/// An egress device, as last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exit {
    /// Why the device cannot send what this fast path hands it; `None`: it can.
    pub(crate) slow: Option<String>,
    /// Whether the last copy may go to a veth's other end directly; `None`: this fast path never
    /// does that.
    pub(crate) peer: Option<PeerDelivery>,
}

impl Exit {
    /// Whether the last copy may go to this subscriber's end of the veth directly.
    pub(super) fn is_direct_to(&self, subscriber: &Subscriber) -> bool {
        matches!(self.obstacle(subscriber), Some(None))
    }

    /// Which way the last copy goes and why; `None` where there is one way only.
    pub(super) fn way_to(&self, subscriber: &Subscriber, settled: bool) -> Option<String> {
        Some(match self.obstacle(subscriber)? {
            None if !settled => "through the device: it has just been taken over".to_owned(),
            None => "to the other end of its veth directly".to_owned(),
            Some(why) => format!("through the device: {why}"),
        })
    }

    fn obstacle(&self, subscriber: &Subscriber) -> Option<Option<&str>> {
        let NextHop::Ready {
            destination_mac, ..
        } = &subscriber.next_hop
        else {
            return None;
        };
        Some(match self.peer.as_ref()? {
            PeerDelivery::Through(why) => Some(why),
            PeerDelivery::Direct { mac } if mac != destination_mac => {
                Some("the frame is not for the address of the veth's other end")
            }
            // The pass goes on while such frames come back, and no queue would end it.
            PeerDelivery::Direct { .. } if subscriber.ttl.is_some() => {
                Some("a fixed TTL would not end a loop of relays")
            }
            PeerDelivery::Direct { .. } => None,
        })
    }

    /// Logs what has changed.
    pub(super) fn log(&self, ifindex: u32, before: &Self) {
        match &self.slow {
            Some(reason) if before.slow != self.slow => {
                tracing::info!(ifindex, reason, "userspace sends the copies");
            }
            None if before.slow.is_some() => tracing::info!(ifindex, "takes copies again"),
            _ => {}
        }
        if before.peer != self.peer {
            tracing::debug!(ifindex, peer = ?self.peer, "the way of last copies");
        }
    }
}
