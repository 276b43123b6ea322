#!/bin/sh
# Runs systemd in namespaces of its own, as `unshare` makes them, over a copy-on-write view of this machine.
# boot.sh STATE PROGRAM: STATE/files is laid over the view, and PROGRAM is /usr/bin/lowroad there.
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
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
	numbers=${device#*:}
	mknod -m 666 "${device%%:*}" c "${numbers%:*}" "${numbers#*:}"
done
mkdir pts shm mqueue hugepages
mount -t devpts -o newinstance,ptmxmode=0666 devpts pts
ln -s pts/ptmx ptmx
ln -s /proc/self/fd fd
cd "$root"
cp -R "$state/files/." .
# The program may be below /tmp, which is another one here.
touch usr/bin/lowroad
mount --bind "$program" usr/bin/lowroad
systemd-sysusers --root="$root" /usr/lib/sysusers.d/lowroad.conf
ip link set lo up
ip link add in0 type veth peer name out0
ip address add 192.0.2.1/24 dev in0
ip link set in0 up
ip link set out0 up
mkdir old
mount --make-rprivate /
pivot_root . old
umount -l /old
exec env -i container=lowroad PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=/etc/lowroad-units \
	/lib/systemd/systemd --system --log-target=null --show-status=no
