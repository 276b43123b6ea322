//! tc programs as clsact filters, for kernels without tcx.
//!
//! A filter outlives its maker, so its name carries the owner: `lowroad-PID-STARTTIME`.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpfOption, TcHandle, TcMessage, TcOption,
};
use sys::netns::Namespace;
use sys::owner::Owner;

use crate::Error;
use crate::attach::Direction;
use crate::netlink::Netlink;
use crate::socket::Change;

const PREFIX: &str = "lowroad-";
/// Filters of one owner and side share a priority and are told apart by handle.
const PRIORITY: u32 = 0x10ad;
/// `ETH_P_ALL`, as it travels.
const ALL_PROTOCOLS: u16 = 3_u16.to_be();
/// Our filters on one side of a device are limited to this number.
const MAX_FILTERS: u32 = 64;

/// The qdiscs that this process made, as (namespace, device): the last filter of ours takes its
/// qdisc along, and one that was there before stays.
static QDISCS: Mutex<BTreeSet<(u64, u32)>> = Mutex::new(BTreeSet::new());

/// An attached filter. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Filter {
    netlink: Netlink,
    namespace: u64,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    ifindex: u32,
    direction: Direction,
    priority: u32,
    handle: u32,
}

impl Filter {
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        ifindex: u32,
        direction: Direction,
    ) -> Result<Self, Error> {
        let mut netlink = Netlink::new()?;
        let namespace = Namespace::current()
            .and_then(|namespace| namespace.inode())
            .map_err(|error| Error::Socket(std::io::Error::other(error)))?;
        let mut qdiscs = QDISCS.lock().unwrap_or_else(PoisonError::into_inner);
        if make_qdisc(&mut netlink, ifindex)? {
            qdiscs.insert((namespace, ifindex));
        }
        for handle in 1..=MAX_FILTERS {
            let place = Place {
                ifindex,
                direction,
                priority: PRIORITY,
                handle,
            };
            match add(&mut netlink, place, program) {
                Ok(()) => {
                    return Ok(Self {
                        netlink,
                        namespace,
                        place,
                    });
                }
                Err(error) if error.errno() == Some(libc::EEXIST) => {}
                Err(error) => {
                    if qdiscs.contains(&(namespace, ifindex)) {
                        let _ = delete_unused_qdisc(&mut netlink, ifindex);
                    }
                    return Err(error);
                }
            }
        }
        Err(Error::refused(
            format!("adding a filter to interface {ifindex}, which has {MAX_FILTERS} of ours"),
            std::io::Error::from_raw_os_error(libc::EEXIST),
        ))
    }
}

impl Filter {
    /// Whether it still is. Where that cannot be found out it is.
    pub(crate) fn is_attached(&mut self) -> bool {
        let place = self.place;
        ours(&mut self.netlink, place.ifindex, place.direction)
            .map_or(true, |found| found.iter().any(|(at, _)| *at == place))
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        let mut qdiscs = QDISCS.lock().unwrap_or_else(PoisonError::into_inner);
        let ifindex = self.place.ifindex;
        // The device, and the filter with it, may be gone: then there is nothing to undo.
        if delete(&mut self.netlink, self.place).is_ok()
            && qdiscs.contains(&(self.namespace, ifindex))
            && delete_unused_qdisc(&mut self.netlink, ifindex).is_ok_and(|deleted| deleted)
        {
            qdiscs.remove(&(self.namespace, ifindex));
        }
    }
}

/// Removes the filters whose owners are dead from the calling thread's namespace, and says how
/// many there were.
pub fn clean() -> Result<usize, Error> {
    let mut netlink = Netlink::new()?;
    let mut removed = 0;
    for link in netlink.links()? {
        let mut here = 0;
        for direction in [Direction::Ingress, Direction::Egress] {
            for (place, owner) in ours(&mut netlink, link.index, direction)? {
                if !owner.alive() {
                    delete(&mut netlink, place)?;
                    here += 1;
                }
            }
        }
        if here > 0 {
            delete_unused_qdisc(&mut netlink, link.index)?;
        }
        removed += here;
    }
    Ok(removed)
}

/// Whether this made it: false when it was there.
fn make_qdisc(netlink: &mut Netlink, ifindex: u32) -> Result<bool, Error> {
    let made = netlink.socket.apply(vec![Change {
        message: RouteNetlinkMessage::NewQueueDiscipline(qdisc(ifindex)),
        flags: NLM_F_CREATE | NLM_F_EXCL,
        action: format!("adding clsact to interface {ifindex}"),
    }]);
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.errno() == Some(libc::EEXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether it was unused.
fn delete_unused_qdisc(netlink: &mut Netlink, ifindex: u32) -> Result<bool, Error> {
    for direction in [Direction::Ingress, Direction::Egress] {
        if !filters(netlink, ifindex, direction)?.is_empty() {
            return Ok(false);
        }
    }
    netlink.socket.apply(vec![Change {
        message: RouteNetlinkMessage::DelQueueDiscipline(qdisc(ifindex)),
        flags: 0,
        action: format!("removing clsact from interface {ifindex}"),
    }])?;
    Ok(true)
}

fn add(netlink: &mut Netlink, place: Place, program: BorrowedFd<'_>) -> Result<(), Error> {
    let mut message = filter(place);
    message.attributes.push(TcAttribute::Kind("bpf".to_owned()));
    message.attributes.push(TcAttribute::Options(vec![
        TcOption::Bpf(TcFilterBpfOption::ProgFd(
            program.as_raw_fd().cast_unsigned(),
        )),
        TcOption::Bpf(TcFilterBpfOption::ProgName(format!(
            "{PREFIX}{}",
            Owner::current()
        ))),
        TcOption::Bpf(TcFilterBpfOption::Flags(TcBpfFlags::DirectAction)),
    ]));
    netlink.socket.apply(vec![Change {
        message: RouteNetlinkMessage::NewTrafficFilter(message),
        flags: NLM_F_CREATE | NLM_F_EXCL,
        action: format!("adding a tc filter to interface {}", place.ifindex),
    }])
}

fn delete(netlink: &mut Netlink, place: Place) -> Result<(), Error> {
    let mut message = filter(place);
    message.attributes.push(TcAttribute::Kind("bpf".to_owned()));
    netlink.socket.apply(vec![Change {
        message: RouteNetlinkMessage::DelTrafficFilter(message),
        flags: 0,
        action: format!("removing a tc filter from interface {}", place.ifindex),
    }])
}

/// The filters that carry our name, with their owners.
fn ours(
    netlink: &mut Netlink,
    ifindex: u32,
    direction: Direction,
) -> Result<Vec<(Place, Owner)>, Error> {
    let found = filters(netlink, ifindex, direction)?;
    Ok(found
        .into_iter()
        .filter_map(|message| {
            let owner = owner(&message)?;
            let place = Place {
                ifindex,
                direction,
                priority: message.header.info >> 16,
                handle: message.header.handle.into(),
            };
            Some((place, owner))
        })
        .collect())
}

/// How many filters one side of a device has, whoever added them.
pub(crate) fn count(
    netlink: &mut Netlink,
    ifindex: u32,
    direction: Direction,
) -> Result<usize, Error> {
    filters(netlink, ifindex, direction).map(|filters| filters.len())
}

/// The kind of the first filter on one side of a device that is not of this project.
pub(crate) fn foreign(
    netlink: &mut Netlink,
    ifindex: u32,
    direction: Direction,
) -> Result<Option<String>, Error> {
    let found = filters(netlink, ifindex, direction)?;
    Ok(found
        .into_iter()
        .filter(|message| owner(message).is_none())
        .find_map(|message| {
            message.attributes.into_iter().find_map(|a| match a {
                TcAttribute::Kind(kind) => Some(kind),
                _ => None,
            })
        }))
}

/// Every filter on one side of a device; none without a clsact qdisc.
fn filters(
    netlink: &mut Netlink,
    ifindex: u32,
    direction: Direction,
) -> Result<Vec<TcMessage>, Error> {
    let mut request = TcMessage::default();
    request.header.index = ifindex.cast_signed();
    request.header.parent = parent(direction);
    let request = RouteNetlinkMessage::GetTrafficFilter(request);
    let answers = match netlink.socket.dump(&request, "listing tc filters") {
        // The device was removed meanwhile.
        Err(error) if error.errno() == Some(libc::ENODEV) => Vec::new(),
        other => other?,
    };
    Ok(answers
        .into_iter()
        .filter_map(|answer| match answer {
            // Handle 0 stands for the priority as such, not for a filter of it.
            RouteNetlinkMessage::NewTrafficFilter(message)
                if message.header.handle != TcHandle::UNSPEC =>
            {
                Some(message)
            }
            _ => None,
        })
        .collect())
}

fn owner(message: &TcMessage) -> Option<Owner> {
    let options = message.attributes.iter().find_map(|a| match a {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    })?;
    options.iter().find_map(|option| match option {
        TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => name.strip_prefix(PREFIX)?.parse().ok(),
        _ => None,
    })
}

fn qdisc(ifindex: u32) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = ifindex.cast_signed();
    message.header.parent = TcHandle::CLSACT;
    message.header.handle = TcHandle {
        major: u16::MAX,
        minor: 0,
    };
    message
        .attributes
        .push(TcAttribute::Kind("clsact".to_owned()));
    message
}

fn filter(place: Place) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = place.ifindex.cast_signed();
    message.header.parent = parent(place.direction);
    message.header.handle = place.handle.into();
    message.header.info = place.priority << 16 | u32::from(ALL_PROTOCOLS);
    message
}

fn parent(direction: Direction) -> TcHandle {
    let minor = match direction {
        Direction::Ingress => 0xfff2,
        Direction::Egress => 0xfff3,
    };
    TcHandle {
        major: u16::MAX,
        minor,
    }
}
