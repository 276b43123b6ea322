//! Errors of `lowroad router`.

use super::*;

#[test]
fn file_errors() {
    use router::image::Error;
    use router::{Error as FileError, Place, listing};
    let file = || "t.img".to_owned();
    let bad_line = || FileError::Input {
        file: "rib".to_owned(),
        place: Place::Line(3),
        what: "no prefix".to_owned(),
    };
    let memory = lpm::Error::Memory {
        what: "pages",
        bytes: 8,
        source: full(),
    };
    check([
        (
            Error::Foreign { file: file() }.into(),
            input("t.img: no table image: lowroad router build makes one"),
        ),
        (
            Error::Damaged {
                file: file(),
                what: "cut off".to_owned(),
            }
            .into(),
            input("t.img: cut off: build it again from its sources"),
        ),
        (
            Error::Read {
                file: file(),
                cause: absent(),
            }
            .into(),
            input("t.img: absent"),
        ),
        (
            Error::Write {
                file: file(),
                cause: full(),
            }
            .into(),
            failed("t.img: cannot be written: full"),
        ),
        (
            Error::Bytes { hops: 300 }.into(),
            input(
                "300 next hops of IPv4, where a table of bytes holds 254: --layout mixed and --layout words hold 32767",
            ),
        ),
        (Error::Routes(bad_line()).into(), input("rib:3: no prefix")),
        (
            Error::Table(lpm::Error::Full { what: "pages" }).into(),
            input("no room left for pages of IPv6 prefixes"),
        ),
        (
            Error::Table(memory).into(),
            failed("no memory for pages (8 bytes): raise the limit (ulimit -v): full"),
        ),
        (bad_line().into(), input("rib:3: no prefix")),
        (
            FileError::Read {
                file: "rib".to_owned(),
                cause: absent(),
            }
            .into(),
            input("rib: absent"),
        ),
        (
            listing::Error::Input(bad_line()).into(),
            input("rib:3: no prefix"),
        ),
        (
            listing::Error::Missing(Missing::new("no program nft", "apt install nftables")).into(),
            missing("kernel  no program nft  apt install nftables"),
        ),
        (
            listing::Error::Failed {
                program: "nft".to_owned(),
                what: "exit 1".to_owned(),
            }
            .into(),
            failed("nft: exit 1"),
        ),
    ]);
}

#[test]
fn service_and_engine_errors() {
    use router::service::Error;
    use router::{cpu, gpu as device, image};
    let foreign = || image::Error::Foreign {
        file: "t.img".to_owned(),
    };
    let foreign_text = "t.img: no table image: lowroad router build makes one";
    let no_device = gpu::Error::NoDevice {
        name: "cuda:0".to_owned(),
        there: Vec::new(),
    };
    let absent_rule = || acl::Error::Absent(4);
    check([
        (
            Error::Rules(router::Error::NextHops {
                targets: 9,
                limit: 8,
            })
            .into(),
            input(
                "9 different next hops in one address family, where lookup has numbers for 8: import fewer tables, or spread the routes over stand-ins",
            ),
        ),
        (Error::Image(foreign()).into(), input(foreign_text)),
        (
            Error::Unsupported("no such action".to_owned()).into(),
            input("no such action"),
        ),
        (
            Error::NoInterface("eth9".to_owned()).into(),
            input("no interface eth9 in this network namespace: name one that `ip link` lists"),
        ),
        (
            Error::Run(router::follow::RunError::Thread(full())).into(),
            failed("following the kernel's tables: full"),
        ),
        (
            Error::Kernel(netdev::Error::Socket(full())).into(),
            failed("opening a netlink socket: full"),
        ),
        (cpu::Error::Image(foreign()).into(), input(foreign_text)),
        (
            cpu::Error::Rules(absent_rule()).into(),
            failed("rules: there is no rule number 4: there is no rule number 4"),
        ),
        (
            cpu::Error::Routes(lpm::Error::Full { what: "pages" }).into(),
            failed("no room left for pages of IPv6 prefixes"),
        ),
        (device::Error::Image(foreign()).into(), input(foreign_text)),
        (
            Failure::from(device::Error::Device(gpu::Error::Missing(Missing::new(
                "no OpenCL",
                "install it",
            ))))
            .needed_by("--device"),
            missing("--device  no OpenCL  install it"),
        ),
        (
            device::Error::Device(no_device).into(),
            input("there is no device cuda:0: no device that runs kernels was found"),
        ),
        (device::Error::Options("not both").into(), input("not both")),
        (
            device::Error::Device(gpu::Error::Endian {
                device: "cuda:0".to_owned(),
            })
            .into(),
            failed(
                "cuda:0 is a big-endian device: tables are little-endian, choose another device",
            ),
        ),
        (
            device::Error::Memory(full()).into(),
            failed("memory for the tables that a device has a copy of: full: full"),
        ),
    ]);
}
