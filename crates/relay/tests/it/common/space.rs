//! Network namespaces, and what goes in and comes out of them as frames.

use std::io::ErrorKind;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use netdev::{LinkSpec, Netlink};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, sendto, socket,
};
use sys::netns::{self, Namespace};

/// How long the tests wait for what must come, on a machine that has much else to do.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// A namespace whose name is removed with it.
pub struct Space {
    name: String,
    pub namespace: Namespace,
}

impl Space {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lr-bed-{}-test-{number}", sys::owner::Owner::current());
        let namespace = Namespace::create(&name).unwrap();
        let space = Self { name, namespace };
        space
            .netlink()
            .set_link(1, &LinkSpec::unnamed().up())
            .unwrap();
        space.run(|| std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0").unwrap());
        space
    }

    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work).unwrap()
    }

    pub fn netlink(&self) -> Netlink {
        self.run(|| Netlink::new().unwrap())
    }

    /// Waits until the kernel has taken note of a device's cable: before, it discards what is sent
    /// by the device, and IPv6 does not use it. Only of the end that came up first it does at once.
    pub fn await_running(&self, device: &str) {
        let deadline = Instant::now() + TIMEOUT;
        let runs = || {
            let mut devices = nix::ifaddrs::getifaddrs().unwrap();
            let runs = InterfaceFlags::IFF_RUNNING;
            devices.any(|one| one.interface_name == device && one.flags.contains(runs))
        };
        self.run(|| {
            while !runs() {
                assert!(Instant::now() < deadline, "{device} does not come up");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }

    /// A socket of a program here that waits for datagrams, for [`TIMEOUT`] each.
    pub fn listen(&self, at: impl ToSocketAddrs + Sync) -> UdpSocket {
        let deadline = Instant::now() + TIMEOUT;
        let bind = || loop {
            match UdpSocket::bind(&at) {
                // A child that another test starts holds what was open here until it is executed.
                Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                    std::thread::yield_now();
                }
                bound => break bound.unwrap(),
            }
        };
        let socket = self.run(bind);
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket
    }

    /// Runs `tc` with these words.
    ///
    /// # Panics
    /// When it fails.
    pub fn tc(&self, words: &str) {
        let mut tc = Command::new("tc");
        tc.args(words.split_whitespace());
        let done = self.run(|| tc.output().unwrap());
        assert!(done.status.success(), "tc {words}: {done:?}");
    }

    pub fn index(&self, name: &str) -> u32 {
        self.netlink().link_by_name(name).unwrap().index
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = netns::remove(&self.name);
    }
}

/// Gives a device both addresses, and waits until packets to them are taken: the kernel adds the
/// local route of an IPv6 address some time after the address.
pub fn add_addresses(netlink: &mut Netlink, ifindex: u32, v4: &str, v6: &str) {
    let [v4, v6]: [IpAddr; 2] = [v4, v6].map(|address| address.parse().unwrap());
    netlink
        .add_addresses(&[(ifindex, v4, 24), (ifindex, v6, 64)])
        .unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while !netlink.route_to(v6, None, None).unwrap().local {
        assert!(Instant::now() < deadline, "{v6} takes no packets");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The next datagram's length and sender.
pub fn recv_datagram(socket: &UdpSocket) -> (usize, String) {
    let mut buffer = [0; 2048];
    let (length, from) = socket.recv_from(&mut buffer).unwrap();
    (length, from.to_string())
}

/// A socket that sees every frame of the calling thread's namespace.
pub fn packet_socket() -> OwnedFd {
    socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::EthAll,
    )
    .unwrap()
}

/// Sends frames as they are, by one device.
pub struct Injector {
    socket: OwnedFd,
    device: LinkAddr,
}

impl Injector {
    pub fn new(space: &Space, device: &str) -> Self {
        space.run(|| {
            let mut devices = nix::ifaddrs::getifaddrs().unwrap();
            let found = devices.find_map(|one| {
                let link = one.address?.as_link_addr().copied()?;
                (one.interface_name == device).then_some(link)
            });
            // For no protocol: it only sends.
            let flags = SockFlag::SOCK_CLOEXEC;
            Self {
                socket: socket(AddressFamily::Packet, SockType::Raw, flags, None).unwrap(),
                device: found.unwrap(),
            }
        })
    }

    pub fn send(&self, frame: &[u8]) {
        let sent = sendto(
            self.socket.as_raw_fd(),
            frame,
            &self.device,
            MsgFlags::empty(),
        );
        assert_eq!(sent, Ok(frame.len()));
    }
}
