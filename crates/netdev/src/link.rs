//! Devices: listed, created in any namespace, changed, removed.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoKind, InfoMacVlan, InfoVeth, InfoVlan, LinkAttribute,
    LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp, MacVlanMode, VlanProtocol,
    XdpAttached,
};

use crate::Error;
use crate::netlink::{Change, Netlink};

/// A device, as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// What somebody has written on it.
    pub alias: Option<String>,
    /// `veth`, `bridge`, `macvlan`; none for a physical device and the loopback.
    pub kind: Option<String>,
    /// All zero where the device has no Ethernet address.
    pub mac: [u8; 6],
    pub ethernet: bool,
    /// `ARPHRD_*` of linux/if_arp.h.
    pub hardware: u16,
    pub mtu: u32,
    /// Administratively up.
    pub up: bool,
    /// Up, its other end is there, and the kernel has noticed: until then it drops what is sent.
    pub carrier: bool,
    pub loopback: bool,
    /// Sends without asking for neighbours.
    pub noarp: bool,
    /// The bridge or bond it is a port of.
    pub controller: Option<u32>,
    /// Index of the other end of a veth or of the device below, in the namespace that
    /// `link_namespace` names where it is another one.
    pub link: Option<u32>,
    /// This namespace's number for the one `link` is in; none when it is this one.
    pub link_namespace: Option<i32>,
    /// The 802.1Q id of a VLAN device.
    pub vlan: Option<u16>,
    /// The queueing discipline at the root: `noqueue`, `fq_codel`, `mq`.
    pub qdisc: String,
    pub tx_queue_len: u32,
    pub tx_queues: u32,
    pub rx_queues: u32,
    /// How many want it to take frames for other machines.
    pub promiscuity: u32,
    pub xdp: Option<XdpMode>,
    /// The id of the attached XDP program.
    pub xdp_program: Option<u32>,
}

/// Where in the receive path XDP programs of a device run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// After the kernel has built its own packet buffer.
    Generic,
    /// In the device.
    Offload,
    /// Programs in several places at once.
    Multiple,
}

impl XdpMode {
    /// `native`, `generic`, `offload`, `multiple`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Offload => "offload",
            Self::Multiple => "multiple",
        }
    }
}

/// What a device to be created or changed should be like. Unset things are the kernel's choice.
#[derive(Clone, Debug, Default)]
pub struct LinkSpec<'a> {
    name: &'a str,
    alias: Option<&'a str>,
    mac: Option<[u8; 6]>,
    mtu: Option<u32>,
    queues: Option<u32>,
    tx_queue_len: Option<u32>,
    namespace: Option<BorrowedFd<'a>>,
    controller: Option<u32>,
    up: Option<bool>,
}

impl<'a> LinkSpec<'a> {
    pub fn new(name: &'a str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// What to change of an existing device, whatever its name.
    pub fn unnamed() -> Self {
        Self::default()
    }

    /// At most 255 bytes; empty, it has none.
    pub fn alias(mut self, alias: &'a str) -> Self {
        self.alias = Some(alias);
        self
    }

    pub fn mac(mut self, mac: [u8; 6]) -> Self {
        self.mac = Some(mac);
        self
    }

    /// Bytes of IP packet.
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = Some(mtu);
        self
    }

    /// As many receive queues and as many transmit queues; only when created.
    pub fn queues(mut self, queues: u32) -> Self {
        self.queues = Some(queues);
        self
    }

    /// Packets.
    pub fn tx_queue_len(mut self, packets: u32) -> Self {
        self.tx_queue_len = Some(packets);
        self
    }

    /// The namespace it is created in or moved to; unset, the socket's own.
    pub fn namespace(mut self, namespace: BorrowedFd<'a>) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// The bridge it becomes a port of; 0 takes it out.
    pub fn controller(mut self, index: u32) -> Self {
        self.controller = Some(index);
        self
    }

    pub fn up(mut self) -> Self {
        self.up = Some(true);
        self
    }

    pub fn down(mut self) -> Self {
        self.up = Some(false);
        self
    }

    fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        if let Some(up) = self.up {
            message.header.change_mask = LinkFlags::Up;
            if up {
                message.header.flags = LinkFlags::Up;
            }
        }
        let name = (!self.name.is_empty()).then(|| LinkAttribute::IfName(self.name.to_owned()));
        message.attributes = [
            name,
            self.alias
                .map(|alias| LinkAttribute::IfAlias(alias.to_owned())),
            self.mac.map(|mac| LinkAttribute::Address(mac.to_vec())),
            self.mtu.map(LinkAttribute::Mtu),
            self.queues.map(LinkAttribute::NumTxQueues),
            self.queues.map(LinkAttribute::NumRxQueues),
            self.tx_queue_len.map(LinkAttribute::TxQueueLen),
            self.controller.map(LinkAttribute::Controller),
            self.namespace
                .map(|namespace| LinkAttribute::NetNsFd(namespace.as_raw_fd())),
        ]
        .into_iter()
        .flatten()
        .collect();
        message
    }
}

impl Netlink {
    /// Every device of the namespace.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.dump(&request, "listing interfaces")?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(message) => Some(Link::from(message)),
                _ => None,
            })
            .collect())
    }

    /// The device called `name`.
    pub fn link_by_name(&mut self, name: &str) -> Result<Link, Error> {
        let mut request = LinkMessage::default();
        request
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        self.link(request, name)
    }

    /// The device with this index.
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, Error> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        self.link(request, &index.to_string())
    }

    /// The device with this index in the namespace of this number.
    pub(crate) fn link_elsewhere(&mut self, index: u32, namespace: i32) -> Result<Link, Error> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        request.attributes.push(LinkAttribute::IfNetnsId(namespace));
        self.link(request, &format!("{index} of namespace {namespace}"))
    }

    fn link(&mut self, request: LinkMessage, name: &str) -> Result<Link, Error> {
        let action = format!("reading interface {name}");
        match self.get(RouteNetlinkMessage::GetLink(request), &action) {
            Ok(RouteNetlinkMessage::NewLink(message)) => Ok(Link::from(message)),
            Ok(_) => Err(Error::Answer {
                action,
                detail: "not a link".to_owned(),
            }),
            Err(error) if error.errno() == Some(libc::ENODEV) => {
                Err(Error::NoInterface(name.to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    /// A pair of virtual Ethernet devices, each end in its own namespace.
    ///
    /// `other` comes up later, by `set_link` in its namespace: the kernel refuses (ENOTCONN) to
    /// bring it up before the pair is complete.
    pub fn add_veth(&mut self, one: &LinkSpec<'_>, other: &LinkSpec<'_>) -> Result<(), Error> {
        let peer = InfoData::Veth(InfoVeth::Peer(other.message()));
        self.add_link(one, InfoKind::Veth, Some(peer), None)
    }

    /// A bridge that forwards at once: no spanning tree, no multicast snooping.
    pub fn add_bridge(&mut self, spec: &LinkSpec<'_>) -> Result<(), Error> {
        let data = InfoData::Bridge(vec![
            InfoBridge::StpState(BridgeStpState::Disabled),
            InfoBridge::ForwardDelay(0),
            InfoBridge::MulticastSnooping(false),
        ]);
        self.add_link(spec, InfoKind::Bridge, Some(data), None)
    }

    /// A macvlan in bridge mode on the device `lower` of the socket's namespace.
    pub fn add_macvlan(&mut self, spec: &LinkSpec<'_>, lower: u32) -> Result<(), Error> {
        let data = InfoData::MacVlan(vec![InfoMacVlan::Mode(MacVlanMode::Bridge)]);
        self.add_link(spec, InfoKind::MacVlan, Some(data), Some(lower))
    }

    fn add_link(
        &mut self,
        spec: &LinkSpec<'_>,
        kind: InfoKind,
        data: Option<InfoData>,
        lower: Option<u32>,
    ) -> Result<(), Error> {
        let action = format!("adding {kind} {}", spec.name);
        let mut message = spec.message();
        message.attributes.extend(lower.map(LinkAttribute::Link));
        let mut info = vec![LinkInfo::Kind(kind)];
        info.extend(data.map(LinkInfo::Data));
        message.attributes.push(LinkAttribute::LinkInfo(info));
        self.apply(vec![Change {
            message: RouteNetlinkMessage::NewLink(message),
            flags: NLM_F_CREATE | NLM_F_EXCL,
            action,
        }])
    }

    /// Changes what `spec` sets of the device with this index; a name in it renames the device.
    pub fn set_link(&mut self, index: u32, spec: &LinkSpec<'_>) -> Result<(), Error> {
        let mut message = spec.message();
        message.header.index = index;
        self.apply(vec![Change {
            message: RouteNetlinkMessage::SetLink(message),
            flags: 0,
            action: format!("changing interface {index}"),
        }])
    }

    /// Removes a device; a veth takes its other end with it.
    pub fn delete_link(&mut self, index: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.apply(vec![Change {
            message: RouteNetlinkMessage::DelLink(message),
            flags: 0,
            action: format!("deleting interface {index}"),
        }])
    }
}

impl From<LinkMessage> for Link {
    fn from(message: LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            index: message.header.index,
            hardware: message.header.link_layer_type.into(),
            ethernet: message.header.link_layer_type == LinkLayerType::Ether,
            up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Running),
            loopback: flags.contains(LinkFlags::Loopback),
            noarp: flags.contains(LinkFlags::Noarp),
            ..Self::default()
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
                LinkAttribute::Address(mac) => link.mac = mac.try_into().unwrap_or_default(),
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::Controller(index) => link.controller = Some(index),
                LinkAttribute::Link(index) => link.link = Some(index),
                LinkAttribute::LinkNetNsId(id) => link.link_namespace = Some(id),
                LinkAttribute::Qdisc(kind) => link.qdisc = kind,
                LinkAttribute::TxQueueLen(packets) => link.tx_queue_len = packets,
                LinkAttribute::NumTxQueues(queues) => link.tx_queues = queues,
                LinkAttribute::NumRxQueues(queues) => link.rx_queues = queues,
                LinkAttribute::Promiscuity(count) => link.promiscuity = count,
                LinkAttribute::Xdp(xdp) => link.read_xdp(&xdp),
                LinkAttribute::LinkInfo(info) => {
                    link.kind = info.iter().find_map(|info| match info {
                        LinkInfo::Kind(kind) => Some(kind.to_string()),
                        _ => None,
                    });
                    link.vlan = info.iter().find_map(|info| match info {
                        LinkInfo::Data(InfoData::Vlan(data)) => vlan(data),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        link
    }
}

/// None of a service VLAN's (802.1ad).
fn vlan(data: &[InfoVlan]) -> Option<u16> {
    let service = InfoVlan::Protocol(VlanProtocol::Ieee8021Ad);
    data.iter().find_map(|info| match info {
        InfoVlan::Id(id) if !data.contains(&service) => Some(*id),
        _ => None,
    })
}

impl Link {
    fn read_xdp(&mut self, attributes: &[LinkXdp]) {
        for attribute in attributes {
            match attribute {
                LinkXdp::Attached(XdpAttached::Driver) => self.xdp = Some(XdpMode::Native),
                LinkXdp::Attached(XdpAttached::SocketBuffer) => self.xdp = Some(XdpMode::Generic),
                LinkXdp::Attached(XdpAttached::Hardware) => self.xdp = Some(XdpMode::Offload),
                LinkXdp::Attached(XdpAttached::Multiple) => self.xdp = Some(XdpMode::Multiple),
                LinkXdp::ProgId(program) => self.xdp_program = Some(*program),
                _ => {}
            }
        }
    }
}
