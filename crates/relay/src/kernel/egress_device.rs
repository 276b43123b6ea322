//! What a fast path can do with an egress device, and the path that a subscriber's copies take through it.

use netdev::NextHop;
use netdev::capability::PeerDelivery;

use crate::plan::Subscriber;

/// An egress device when it was last checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EgressDevice {
    /// Why the device cannot send for this fast path; `None` if it can.
    pub(crate) slow: Option<String>,
    /// Whether the last copy may go to a veth's other end directly; `None`: this fast path never
    /// does that.
    pub(crate) peer: Option<PeerDelivery>,
}

impl EgressDevice {
    /// Whether the last copy may go to this subscriber's end of the veth directly.
    pub(super) fn is_direct_to(&self, subscriber: &Subscriber) -> bool {
        matches!(self.obstacle(subscriber), Some(None))
    }

    /// The path of the last copy, and the reason; `None` if there is only one path.
    pub(super) fn path_to(&self, subscriber: &Subscriber, settled: bool) -> Option<String> {
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

    /// Logs changes.
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
