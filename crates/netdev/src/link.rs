//! Devices: what the kernel says of one, and what one to be created or changed should be like.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::link::{
    InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp,
    VlanProtocol, XdpAttached,
};

/// A device, as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// The alias that an administrator has set.
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

/// The properties of a device to be created or changed. The kernel chooses those that are unset.
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

    /// A change of an existing device, which keeps its name.
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

    pub(crate) fn name(&self) -> &str {
        self.name
    }

    pub(crate) fn message(&self) -> LinkMessage {
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
