//! Devices of this machine that a link lends to its hosts: which may be lent, and how each comes back as it was,
//! even when its borrower was killed. The device's own alias records how it was.

use std::os::fd::AsFd as _;

use netdev::{Link, LinkSpec, Netlink};
use sys::netns::Namespace;

use crate::error::{Error, at};
use crate::settings::LinkSettings;

/// The first word of the note on a lent device.
const MARK: &str = "lowroad-nic";
/// The longest alias that the kernel accepts.
const MAX_NOTE_LEN: usize = 255;

/// A device that a host has. Dropping this returns it.
#[derive(Debug)]
pub(crate) struct NicLease {
    home: Namespace,
    place: Namespace,
    index: u32,
}

/// The state of a device at home.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    /// The number of the namespace that it is from.
    home: u64,
    name: String,
    mtu: u32,
    tx_queue_len: u32,
    up: bool,
    alias: String,
}

/// The Ethernet address of a device that may be lent.
pub(crate) fn address(name: &str) -> Result<[u8; 6], Error> {
    Ok(find(name)?.mac)
}

/// Moves a device from the caller's namespace to `place`, where it is called `device` and still down.
pub(crate) fn lease(
    name: &str,
    place: &Namespace,
    device: &str,
    settings: &LinkSettings,
) -> Result<NicLease, Error> {
    let link = find(name)?;
    let home = Namespace::current()?;
    let note = Note {
        home: home.inode()?,
        name: link.name,
        mtu: link.mtu,
        tx_queue_len: link.tx_queue_len,
        up: link.up,
        alias: link.alias.unwrap_or_default(),
    };
    let text = note.to_string();
    if text.len() > MAX_NOTE_LEN {
        return Err(refusal(
            name,
            "what is written on it leaves no room for a note",
        ));
    }
    let spec = LinkSpec::new(device)
        .alias(&text)
        .mtu(settings.mtu)
        .tx_queue_len(settings.tx_queue_len)
        .namespace(place.as_fd())
        .down();
    let moved = Netlink::new().and_then(|mut netlink| netlink.set_link(link.index, &spec));
    moved.map_err(at(name))?;
    // Its index may be another one there.
    let there = place.run(|| Netlink::new()?.link_by_name(device))?;
    Ok(NicLease {
        home,
        place: place.try_clone()?,
        index: there.map_err(at(name))?.index,
    })
}

/// A device that nothing of this machine's would miss.
fn find(name: &str) -> Result<Link, Error> {
    let read = || {
        let mut netlink = Netlink::new()?;
        let link = netlink.link_by_name(name)?;
        let addresses = netlink.addresses()?;
        let index = link.index;
        let own = addresses
            .into_iter()
            .filter(move |own| own.ifindex == index);
        let own: Vec<_> = own.map(|own| own.address).collect();
        let mut all = netlink.links()?.into_iter();
        Ok((all.find(|other| is_above(other, index)), link, own))
    };
    let (above, link, addresses) = read().map_err(at(name))?;
    let used = addresses
        .into_iter()
        .find(|address| !is_link_local(*address));
    if link.loopback || !link.ethernet {
        Err(refusal(name, "it is not an Ethernet device"))
    } else if link.controller.is_some() {
        Err(refusal(
            name,
            "it is a port of another device; take it out first",
        ))
    } else if let Some(above) = above {
        let why = format!("{} is made on it; take that off first", above.name);
        Err(refusal(name, &why))
    } else if let Some(address) = used {
        let why =
            format!("this machine has {address} there; take the address off, or name another");
        Err(refusal(name, &why))
    } else {
        Ok(link)
    }
}

/// Whether it is a VLAN, or the like, on the device of this index, which it would lose its network with.
fn is_above(other: &Link, index: u32) -> bool {
    // For these kinds, the index is that of the other end.
    let pair = matches!(other.kind.as_deref(), Some("veth" | "netkit"));
    !pair && other.link == Some(index) && other.link_namespace.is_none()
}

fn is_link_local(address: std::net::IpAddr) -> bool {
    match address {
        std::net::IpAddr::V4(address) => address.is_link_local(),
        std::net::IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn refusal(name: &str, why: &str) -> Error {
    Error::Topology(format!("{name} cannot be lent: {why}"))
}

impl NicLease {
    fn give_back(&self) -> Result<(), Error> {
        let link = self
            .place
            .run(|| Netlink::new()?.link_by_index(self.index))?;
        let link = link.map_err(at("a lent device"))?;
        match link.alias.as_deref().and_then(Note::read) {
            Some(note) => restore(&self.place, link.index, &note, &self.home),
            None => Err(refusal(&link.name, "the note of its name is missing")),
        }
    }
}

impl Drop for NicLease {
    fn drop(&mut self) {
        if let Err(error) = self.give_back() {
            tracing::warn!("{error}");
        }
    }
}

/// Returns the devices that a dead borrower has in `place`, and counts them. Those of another namespace
/// than the caller's stay, and with them the place: an error.
pub(crate) fn return_all(place: &Namespace) -> Result<usize, Error> {
    let home = Namespace::current()?;
    let links = place
        .run(|| Netlink::new()?.links())?
        .map_err(at("cleaning"))?;
    let mut returned = 0;
    for link in links {
        let Some(note) = link.alias.as_deref().and_then(Note::read) else {
            continue;
        };
        if note.home != home.inode()? {
            let why = "it is from another network namespace; clean up there";
            return Err(refusal(&note.name, why));
        }
        restore(place, link.index, &note, &home)?;
        returned += 1;
    }
    Ok(returned)
}

fn restore(place: &Namespace, index: u32, note: &Note, home: &Namespace) -> Result<(), Error> {
    let spec = LinkSpec::new(&note.name)
        .alias(&note.alias)
        .mtu(note.mtu)
        .tx_queue_len(note.tx_queue_len)
        .namespace(home.as_fd())
        .down();
    let moved = place.run(|| Netlink::new()?.set_link(index, &spec))?;
    moved.map_err(at(&note.name))?;
    if !note.up {
        return Ok(());
    }
    let up = home.run(|| {
        let mut netlink = Netlink::new()?;
        let index = netlink.link_by_name(&note.name)?.index;
        netlink.set_link(index, &LinkSpec::unnamed().up())
    })?;
    up.map_err(at(&note.name))
}

impl Note {
    fn read(text: &str) -> Option<Self> {
        let mut words = text.splitn(7, ' ');
        let mut word = || words.next();
        if word()? != MARK {
            return None;
        }
        Some(Self {
            home: word()?.parse().ok()?,
            name: word()?.to_owned(),
            mtu: word()?.parse().ok()?,
            tx_queue_len: word()?.parse().ok()?,
            up: word()? == "up",
            alias: word()?.to_owned(),
        })
    }
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            home,
            name,
            mtu,
            tx_queue_len,
            up,
            alias,
        } = self;
        let up = if *up { "up" } else { "down" };
        write!(f, "{MARK} {home} {name} {mtu} {tx_queue_len} {up} {alias}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_what_the_device_was_like() {
        for (up, alias) in [(true, ""), (false, "to the third rack")] {
            let note = Note {
                home: 4_026_531_840,
                name: "eth1".to_owned(),
                mtu: 9000,
                tx_queue_len: 1000,
                up,
                alias: alias.to_owned(),
            };
            assert_eq!(Note::read(&note.to_string()), Some(note));
        }
        for other in [
            "",
            "to the third rack",
            "lowroad-nic",
            "lowroad-nic 1 eth1 x 1 up ",
        ] {
            assert_eq!(Note::read(other), None, "{other}");
        }
    }
}
