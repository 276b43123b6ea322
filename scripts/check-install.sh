#!/bin/sh
# Installs the tarball and the Debian package of a folder on this system, one after the other, and runs what they install:
# scripts/fresh-debian.sh scripts/check-install.sh /results/packages
# It changes the system, so it is for one that is removed afterwards.
set -eu
packages=$1
if [ -z "${LOWROAD_SCRATCH_SYSTEM:-}" ]; then
	echo "this changes the system: run it by scripts/fresh-debian.sh" >&2
	exit 3
fi

step() {
	echo "== $1"
}

# The programs of a prefix, and the files beside them.
check() {
	prefix=$1
	zsh_folder=$2
	PATH=$prefix/bin:$original_path
	[ "$(command -v lowroad)" = "$prefix/bin/lowroad" ]
	lowroad --version
	lowroad-onnx --version
	netbench-agent --version
	lowroad compare --list >/dev/null
	# 3: this system lacks something, which is what doctor is there to say.
	lowroad doctor --json >/tmp/doctor.json || [ $? = 3 ]
	grep -q '"recv"' /tmp/doctor.json
	man -P cat lowroad-relay >/tmp/page
	grep -q 'relay' /tmp/page
	# shellcheck disable=SC2016 # expanded by the inner shell
	bash -c '
		. "$1/share/bash-completion/completions/lowroad"
		COMP_WORDS=(lowroad relay switch cam --datapath "") COMP_CWORD=5
		_lowroad lowroad "" --datapath
		printf "%s\n" "${COMPREPLY[@]}"
	' bash "$prefix" >/tmp/names
	grep -qx xdp /tmp/names
	[ -s "$prefix/share/fish/vendor_completions.d/lowroad.fish" ]
	[ -s "$prefix/share/zsh/$zsh_folder/_lowroad" ]
	[ -s "$prefix/lib/systemd/system/lowroad-relay.service" ]
}

# Which files there are, without those that any package's installation changes.
list() {
	find /usr /etc -xdev ! -type d ! -path '/usr/share/lowroad-check/*' \
		! -name 'ld.so.cache' ! -name 'passwd*' ! -name 'group*' ! -name 'shadow*' ! -name 'gshadow*' | sort
}

original_path=$PATH
export DEBIAN_FRONTEND=noninteractive
step "what the checks need"
apt-get update -qq
apt-get install -y -qq --no-install-recommends man-db libelf1 zlib1g systemd-standalone-sysusers >/dev/null
(cd "$packages" && sha256sum --check --quiet SHA256SUMS)

step "tarball"
mkdir /tmp/unpacked
tar -xzf "$packages"/lowroad-*-linux-gnu.tar.gz -C /tmp/unpacked
list >/tmp/before
cd /tmp/unpacked/*/
./install
cd /
check /usr/local site-functions
/usr/local/share/lowroad/install --uninstall
list | diff /tmp/before -

step "Debian package"
apt-get install -y -qq "$packages"/lowroad_*.deb >/dev/null
check /usr vendor-completions
id lowroad
dpkg --verify lowroad
apt-get purge -y -qq lowroad >/dev/null
PATH=$original_path
list | diff /tmp/before -
echo "both packages were installed, run and removed"
