#!/bin/sh
# Runs a command of this repository on a fresh Debian 12, to show that it sets up all that it needs:
# sudo scripts/fresh-debian.sh ./demo --out /results/demo
# debootstrap makes the system in a folder that is removed afterwards. It has the last commit in /lowroad, this machine's
# kernel and network, and target/fresh-debian as /results. With --rust as the first word it also has this machine's Rust, for
# where rustup's server cannot be reached. With --suite noble it is Ubuntu 24.04.
set -eu
cd "$(dirname "$0")/.."
if [ "$(id -u)" != 0 ]; then
	echo "needs root: sudo $0 $*" >&2
	exit 3
fi
for program in debootstrap git unshare; do
	if ! command -v "$program" >/dev/null; then
		echo "needs $program: apt-get install debootstrap git util-linux" >&2
		exit 3
	fi
done
rust=
suite=bookworm
while :; do
	case ${1:-} in
	--rust)
		rust=$HOME
		shift
		;;
	--suite)
		suite=${2:?--suite: bookworm or noble}
		shift 2
		;;
	*) break ;;
	esac
done
if [ $# = 0 ]; then
	echo "which command? for example: $0 ./demo --out /results/demo" >&2
	exit 2
fi
results=$PWD/target/fresh-debian
mkdir -p "$results"
system=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
# --one-file-system: nothing that is still mounted below is entered.
trap 'rm -rf --one-file-system "$system"' EXIT
if [ "$suite" = noble ]; then
	# Debian's debootstrap has one script for all of Ubuntu, and not its keys.
	keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
	if [ ! -e "$keys" ]; then
		echo "needs Ubuntu's keys: apt-get install ubuntu-keyring" >&2
		exit 3
	fi
	debootstrap --variant=minbase --include=ca-certificates --components=main,universe --keyring="$keys" \
		noble "$system" http://archive.ubuntu.com/ubuntu gutsy >&2
else
	debootstrap --variant=minbase --include=ca-certificates "$suite" "$system" >&2
fi
mkdir "$system/lowroad" "$system/results"
git archive HEAD | tar -x -C "$system/lowroad"
# Certificates of a proxy that this machine trusts, and how names are resolved.
cp -L /etc/resolv.conf /etc/hosts "$system/etc/"
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
	cp -L /etc/ssl/certs/ca-certificates.crt "$system/etc/ssl/certs/"
fi
# The mounts are those of a namespace that ends with the command.
# shellcheck disable=SC2016 # expanded by the inner shell
unshare --mount --propagation private sh -euc '
	system=$1 results=$2 rust=$3
	shift 3
	# The root has to be a mount of its own: test beds change how mounts below it propagate.
	mount --bind "$system" "$system"
	mount -t proc proc "$system/proc"
	mount --rbind /sys "$system/sys"
	mount --rbind /dev "$system/dev"
	mount -t tmpfs tmpfs "$system/run"
	mount --bind "$results" "$system/results"
	for folder in ${rust:+.cargo .rustup}; do
		mkdir -p "$system/root/$folder"
		mount --bind "$rust/$folder" "$system/root/$folder"
	done
	cd "$system"
	pivot_root . mnt
	umount -l mnt
	exec env -i LOWROAD_SCRATCH_SYSTEM=1 HOME=/root TERM="${TERM:-dumb}" \
		PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot . sh -c "cd /lowroad && exec \"\$@\"" sh "$@"
' sh "$system" "$results" "$rust" "$@"
