//! A veth between two namespaces in which nothing else is said.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use netdev::{LinkSpec, Netlink};
use sys::netns::{self, Namespace};

/// A namespace whose name is removed with it.
struct Space {
    name: String,
    namespace: Namespace,
}

impl Space {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lr-{}-features-{number}", std::process::id());
        let namespace = Namespace::create(&name).unwrap();
        let space = Self { name, namespace };
        // Or the kernel looks for neighbours and routers.
        let silence = || std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        space.namespace.run(silence).unwrap().unwrap();
        space
    }

    fn netlink(&self) -> Netlink {
        self.namespace.run(|| Netlink::new().unwrap()).unwrap()
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = netns::remove(&self.name);
    }
}

/// What goes in at the far end comes out at the near end.
pub(crate) struct Wire {
    near: Space,
    far: Space,
    pub(crate) ifindex: u32,
    far_ifindex: u32,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let (near, far) = (Space::new(), Space::new());
        let end = || LinkSpec::new("eth0").queues(2);
        near.netlink()
            .add_veth(&end().up(), &end().namespace(far.namespace.as_fd()))
            .unwrap();
        let index = |space: &Space| space.netlink().link_by_name("eth0").unwrap().index;
        let (ifindex, far_ifindex) = (index(&near), index(&far));
        let up = LinkSpec::unnamed().up();
        far.netlink().set_link(far_ifindex, &up).unwrap();
        while !far.netlink().link_by_index(far_ifindex).unwrap().carrier {
            std::thread::yield_now();
        }
        Self {
            near,
            far,
            ifindex,
            far_ifindex,
        }
    }

    /// Has frames that a CPU sends come in by the queue of that number.
    pub(crate) fn queue_for_each_cpu(&self, cpus: &[usize]) {
        let write = || {
            for (queue, cpu) in cpus.iter().enumerate() {
                let file = format!("/sys/class/net/eth0/queues/tx-{queue}/xps_cpus");
                std::fs::write(file, format!("{:x}", 1_u64 << cpu)).unwrap();
            }
        };
        self.far.namespace.run_with_sysfs(write).unwrap();
    }

    /// Gives the near end an address.
    pub(crate) fn address(&self, address: std::net::IpAddr) {
        let index = self.ifindex;
        let added = self.near.netlink().add_addresses(&[(index, address, 24)]);
        added.unwrap();
    }

    /// Does something in the namespace of the near end.
    pub(crate) fn near<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.near.namespace.run(work).unwrap()
    }

    pub(crate) fn sender(&self) -> Sender {
        let index = self.far_ifindex;
        let socket = || sys::socket::raw_sender(index).unwrap();
        Sender(self.far.namespace.run(socket).unwrap())
    }
}

/// Puts frames on the wire.
pub(crate) struct Sender(OwnedFd);

impl Sender {
    /// Sends a frame; false where there was no room for it.
    pub(crate) fn send(&self, frame: &[u8]) -> bool {
        // SAFETY: the frame is as long as is said, and outlives the call.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        usize::try_from(sent) == Ok(frame.len())
    }
}
