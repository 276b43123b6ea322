//! Devices, and the datapaths that can capture from them. A datapath's own `check` reports what the machine lacks. The
//! checks here report what a device lacks, both on request and before a datapath starts.

use std::path::Path;

use datapath::{Datapath, Error, Missing};
use netdev::capability::{XdpSupport, xdp_support};
use netdev::{Link, Netlink, attach};
use sys::ethtool::{Channels, Ethtool};
use sys::numa;

use super::{Features, Plan};

/// A device's properties, as reported by the kernel and the driver.
#[derive(Clone, Debug)]
pub struct Device {
    pub link: Link,
    /// `None` for devices without a driver, such as the loopback device.
    pub driver: Option<String>,
    /// Queues in use, if the driver supports changing them.
    pub channels: Option<Channels>,
    /// `None` for virtual devices, and on machines with a single NUMA node.
    pub numa_node: Option<u32>,
    /// `None` if the kernel cannot report it.
    pub support: Option<XdpSupport>,
}

/// Work that a device may do instead of the programs.
pub const OFFLOADS: [&str; 4] = ["zero-copy", "rx-timestamp", "rx-hash", "rx-vlan-tag"];

impl Device {
    /// Lists all devices in the network namespace of the calling thread.
    pub fn all() -> Result<Vec<Self>, Error> {
        let failed = |error| Error::failed("listing the interfaces", error);
        let links = Netlink::new().and_then(|mut netlink| netlink.links());
        let devices = links.map_err(failed)?.into_iter();
        // Skip a device that has been deleted in the meantime.
        Ok(devices.filter_map(|link| Self::of(link).ok()).collect())
    }

    fn of(link: Link) -> Result<Self, netdev::Error> {
        let ethtool = Ethtool::open(&link.name).ok();
        let ethtool = ethtool.as_ref();
        Ok(Self {
            driver: ethtool.and_then(|device| device.driver().ok()),
            channels: ethtool.and_then(|device| device.channels().ok()),
            numa_node: numa::device_node(Path::new(numa::SYSFS), &link.name),
            support: xdp_support(link.index)?,
            link,
        })
    }

    /// How a datapath captures from this device: `native`, `generic`, `tcx`, `copy`. The error is what the datapath,
    /// the machine or the device lacks.
    pub fn check(&self, datapath: &dyn Datapath<Features>) -> Result<&'static str, Missing> {
        datapath.check()?;
        let name = datapath.name();
        self.fits(name)?;
        Ok(match name {
            "xdp-ringbuf" | "xdp-flow" => "native",
            "xdp-generic" => "generic",
            "tc-flow" => attach::tc_via().name(),
            "af-xdp" => "copy",
            _ => "packet socket",
        })
    }

    fn fits(&self, datapath: &str) -> Result<(), Missing> {
        fits(datapath, &self.link)?;
        match needs_native(datapath) {
            true => self.native(),
            false => Ok(()),
        }
    }

    /// Whether the driver may support native XDP. An unknown driver may, and starting the datapath decides. The
    /// loopback device never does.
    fn native(&self) -> Result<(), Missing> {
        let has = self
            .support
            .map_or(!self.link.loopback, |support| support.native);
        if has {
            return Ok(());
        }
        Err(Missing::new(
            "its driver has no native XDP",
            "xdp-generic and tc-flow work on any device",
        ))
    }

    /// Whether the device reports one of [`OFFLOADS`].
    pub fn offload(&self, name: &str) -> Result<(), Missing> {
        let Some(support) = &self.support else {
            return Err(Missing::new(
                "this kernel cannot be asked",
                "Linux 6.3 and later can",
            ));
        };
        let metadata = support.metadata;
        let reported = match name {
            "zero-copy" => Some(support.zero_copy),
            "rx-timestamp" => metadata.map(|has| has.timestamp),
            "rx-hash" => metadata.map(|has| has.hash),
            _ => metadata.map(|has| has.vlan_tag),
        };
        match reported {
            Some(true) => Ok(()),
            Some(false) => Err(Missing::new("its driver reports none", "")),
            None => Err(Missing::new("this kernel does not say", "later ones do")),
        }
    }
}

fn needs_native(datapath: &str) -> bool {
    matches!(datapath, "xdp-ringbuf" | "xdp-flow" | "af-xdp")
}

/// Checks that a datapath can capture from the plan's device.
pub(super) fn check_plan(datapath: &str, plan: &Plan) -> Result<(), Error> {
    let link = Netlink::new().and_then(|mut netlink| netlink.link_by_index(plan.ifindex));
    let device = link.and_then(Device::of);
    let device = device.map_err(|error| Error::failed(plan.interface.clone(), error))?;
    device.fits(datapath).map_err(|missing| {
        let what = format!("{}: {}", plan.interface, missing.what);
        Missing::new(what, missing.remedy).into()
    })
}

fn fits(datapath: &str, link: &Link) -> Result<(), Missing> {
    let at_xdp = datapath.starts_with("xdp-") || datapath == "af-xdp";
    if at_xdp && super::is_raw(link.hardware) {
        return Err(Missing::new(
            "its frames have no Ethernet header, which is read in XDP",
            "tc-flow, tpacket and recv read frames without",
        ));
    }
    if at_xdp && let (Some(mode), Some(program)) = (link.xdp, link.xdp_program) {
        return Err(Missing::new(
            format!("has an XDP program already (id {program}, {})", mode.name()),
            format!(
                "detach it: ip link set dev {} xdp off, or bpftool link",
                link.name
            ),
        ));
    }
    if matches!(datapath, "recv" | "tpacket" | "af-xdp") && !link.up {
        return Err(Missing::new(
            "is down",
            format!("ip link set dev {} up", link.name),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use netdev::XdpMode;
    use netdev::capability::Metadata;

    use super::*;

    fn device(hardware: u16) -> Device {
        Device {
            link: Link {
                name: "a0".to_owned(),
                hardware,
                up: true,
                ..Link::default()
            },
            driver: None,
            channels: None,
            numa_node: None,
            support: Some(XdpSupport::default()),
        }
    }

    fn lacks(datapath: &str, link: &Link) -> String {
        fits(datapath, link)
            .err()
            .map_or_else(String::new, |missing| missing.what)
    }

    #[test]
    fn a_device_is_refused_by_the_datapaths_that_cannot_take_its_frames() {
        let tunnel = device(libc::ARPHRD_NONE).link;
        let mut down = device(libc::ARPHRD_ETHER).link;
        down.up = false;
        let mut taken = device(libc::ARPHRD_ETHER).link;
        (taken.xdp, taken.xdp_program) = (Some(XdpMode::Generic), Some(7));
        for datapath in super::super::datapaths() {
            let name = datapath.name();
            let is_xdp = name.contains("xdp");
            assert_eq!(lacks(name, &tunnel).contains("Ethernet"), is_xdp, "{name}");
            assert_eq!(
                lacks(name, &taken).contains("id 7, generic"),
                is_xdp,
                "{name}"
            );
            let listens = ["recv", "tpacket", "af-xdp"].contains(&name);
            assert_eq!(lacks(name, &down).contains("down"), listens, "{name}");
        }
    }

    #[test]
    fn what_a_driver_does_not_report_is_said_with_the_reason() {
        let mut device = device(libc::ARPHRD_ETHER);
        assert!(device.native().is_err());
        for name in OFFLOADS {
            assert!(device.offload(name).is_err(), "{name}");
        }
        let metadata = Metadata {
            hash: true,
            ..Metadata::default()
        };
        device.support = Some(XdpSupport {
            native: true,
            metadata: Some(metadata),
            ..XdpSupport::default()
        });
        assert!(device.native().is_ok());
        let has = OFFLOADS.map(|name| device.offload(name).is_ok());
        assert_eq!(has, [false, false, true, false]);
        device.support = None;
        assert!(device.native().is_ok(), "what cannot be asked is tried");
        let why = device.offload("rx-hash").unwrap_err();
        assert!(why.what.contains("cannot be asked"), "{why}");
        device.link.loopback = true;
        assert!(device.native().is_err(), "but for the loopback");
    }
}
