#!/bin/sh
# boot.sh STATE PROGRAM: runs systemd over a copy-on-write view of this machine, in namespaces that `unshare` has made.
# STATE/files is laid over the view, and PROGRAM is /usr/bin/lowroad there.
set -eu
state=$1 program=$2 root=$1/root
mount -t tmpfs tmpfs "$state/layers"
mkdir "$state/layers/upper" "$state/layers/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$state/layers/upper,workdir=$state/layers/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
cd "$root/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
	mknod -m 666 "${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 tty c 5 0
mkdir pts shm mqueue hugepages
mount -t devpts -o newinstance,ptmxmode=0666 devpts pts
ln -s pts/ptmx ptmx
ln -s /proc/self/fd fd
cd "$root"
cp -R "$state/files/." .
# The program may be below /tmp, which is another one here.
touch usr/bin/lowroad
mount --bind "$program" usr/bin/lowroad
chroot . systemd-sysusers /usr/lib/sysusers.d/lowroad.conf
mkdir -p srv/app
mount -t tmpfs tmpfs srv/app
echo first >srv/app/first
(
	cd etc/lowroad
	chroot "$root" lowroad replicate keys /etc/lowroad/keys --server localhost --client edge-1
	cp keys/ca.pem keys/edge-1.pem keys/edge-1.key .
	chroot "$root" chown lowroad /etc/lowroad/token
	chroot "$root" chown lowroad-replica /etc/lowroad/edge-1.key
	chmod 600 token netbench-token edge-1.key
)
ip link set lo up
for device in tc xdp route capture flow; do
	ip link add "${device}0" type veth peer name "${device}1"
	ip link set "${device}0" up
	ip link set "${device}1" up
done
ip address add 192.0.2.1/24 dev tc0
ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev tc0
ip address add 198.51.100.1/24 dev xdp0
ip neighbour add 198.51.100.2 lladdr 02:00:00:00:00:02 dev xdp0
mkdir old
mount --make-rprivate /
pivot_root . old
umount -l /old
# As systemd does by itself outside containers: credentials are mounted where the manager sees them, too.
mount --make-rshared /
exec env -i container=lowroad PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=/etc/lowroad-units \
	/lib/systemd/systemd --system --log-target=null --show-status=no
