# shellcheck shell=sh
# Set-up shared by ./demo and ./test: Debian packages through apt, Rust through rustup.
# Sourced with the repository as working directory. Exit code 3: this machine lacks something.

packages_to() {
	case $1 in
	build) echo gcc libc6-dev make pkg-config clang libelf-dev ca-certificates curl git ;;
	run) echo iproute2 ffmpeg runc ;;
	test) echo clang-format g++ python3-venv qemu-system-x86 busybox-static iproute2 ffmpeg tcpdump tshark nats-server nfdump pmacct bird2 frr iptables nftables ipvsadm runc iputils-ping ethtool procps traceroute e2fsprogs sqlite3 xfsprogs btrfs-progs postgresql redis-server strace pocl-opencl-icd ocl-icd-libopencl1 systemd python3-yaml ;;
	full)
		echo chromium fonts-dejavu-core rtpengine-daemon nginx-light libnginx-mod-stream socat
		echo libdpdk-dev prometheus
		echo inotify-tools bindfs python3-flask
		echo fio python3-lmdb mariadb-server-core mariadb-client-core
		echo iperf3 nuttcp sockperf podman
		# Often installed from elsewhere, and then not to be replaced.
		command -v dockerd >/dev/null || echo docker.io
		echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
		echo gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good
		echo gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly
		command -v npm >/dev/null || echo nodejs npm
		command -v go >/dev/null || echo golang-go
		command -v java >/dev/null || echo default-jre-headless
		command -v mvn >/dev/null || echo maven
		;;
	esac
}

# Asks on the terminal; without one the answer is no.
confirm() {
	[ -t 0 ] || return 1
	printf '%s [y/N] ' "$1"
	read -r answer
	[ "$answer" = y ] || [ "$answer" = Y ]
}

# Installs what is missing for the named purposes.
need_packages() {
	missing=""
	for purpose in "$@"; do
		for package in $(packages_to "$purpose"); do
			dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
				missing="$missing $package"
		done
	done
	[ -n "$missing" ] || return 0
	install="apt-get install -y --no-install-recommends$missing"
	if ! command -v apt-get >/dev/null; then
		echo "needs what Debian calls:$missing" >&2
		exit 3
	fi
	if [ "$(id -u)" = 0 ]; then
		sudo=""
	elif confirm "Install with sudo:$missing?"; then
		sudo="sudo"
	else
		echo "some packages are missing; to install them: sudo $install" >&2
		exit 3
	fi
	export DEBIAN_FRONTEND=noninteractive
	services_stay_off
	# shellcheck disable=SC2086 # words on purpose
	if ! { $sudo apt-get update -q && $sudo $install; } >.setup.log 2>&1; then
		tail -n 5 .setup.log >&2
		echo "apt could not install:$missing (no network? see .setup.log)" >&2
		exit 3
	fi
	services_as_before
	rm -f .setup.log
}

# A test must not leave a web server running: tests start what they need by themselves.
services_stay_off() {
	policy=/usr/sbin/policy-rc.d
	[ ! -e "$policy" ] || return 0
	trap services_as_before EXIT
	printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
	$sudo chmod 755 "$policy"
}

services_as_before() {
	trap - EXIT
	[ "$(cat "$policy")" != "$(printf '#!/bin/sh\nexit 101\n')" ] || $sudo rm -f "$policy"
}

# Makes the pinned toolchain usable: rustup installs what rust-toolchain.toml names.
need_rust() {
	PATH="$PATH:$HOME/.cargo/bin"
	channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
	if ! command -v cargo >/dev/null; then
		if [ -t 0 ] && ! confirm "Install Rust $channel into ~/.cargo with rustup?"; then
			echo "needs Rust $channel: install rustup, then run this again" >&2
			exit 3
		fi
		curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
			sh -s -- -q -y --no-modify-path --profile minimal --default-toolchain none || true
	fi
	if ! cargo --version 2>/dev/null | grep -q "^cargo $channel"; then
		echo "needs Rust $channel, which rustup could not install (no network?)" >&2
		echo "where it is reachable: rustup toolchain install $channel -c clippy -c rustfmt" >&2
		exit 3
	fi
	# What netbench's agent is linked against; without it the tests that need the agent are skipped.
	rustup -q target add "$(uname -m)-unknown-linux-musl" 2>/dev/null || true
}

# Under `sudo ./demo`, goes on as the person who called it: what is built stays theirs.
as_caller() {
	if [ "$(id -u)" = 0 ] && [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ]; then
		exec sudo -u "$SUDO_USER" -H -- "$@"
	fi
}
