#!/bin/sh
# Builds the router's peers into FOLDER, where lowroad-compare finds them: target/peers, or what
# LOWROAD_PEERS names. What this machine cannot build is left out, and said.
set -eu
here=$(dirname "$0")
out=${1:-${CARGO_TARGET_DIR:-$here/../target}/peers}
mkdir -p "$out"
out=$(cd "$out" && pwd)

if ! command -v cc >/dev/null || ! pkg-config --exists libdpdk; then
	echo "no DPDK peers: apt-get install gcc pkg-config libdpdk-dev" >&2
else
	# No symbol names the ring driver of memory pools, yet rte_fib needs it when it runs.
	cc -O3 -march=native -Wall -Wextra $(pkg-config --cflags libdpdk) "$here/dpdk/lpm.c" \
		-o "$out/dpdk-lpm" $(pkg-config --libs libdpdk) -Wl,--no-as-needed -lrte_mempool_ring
	cc -O3 -march=native -Wall -Wextra $(pkg-config --cflags libdpdk) "$here/dpdk/acl.c" \
		-o "$out/dpdk-acl" $(pkg-config --libs libdpdk)
fi

# Of several Go toolchains, one that is new enough.
wanted=$(sed -n 's/^go 1\.//p' "$here/bart/go.mod")
for go in "$(command -v go || true)" /usr/local/go/bin/go; do
	[ -x "$go" ] || continue
	minor=$("$go" version | sed -n 's/.* go1\.\([0-9]*\).*/\1/p')
	[ "${minor:-0}" -ge "$wanted" ] || continue
	(cd "$here/bart" && CGO_ENABLED=0 "$go" build -trimpath -o "$out/bart" .) && exit 0
	echo "no bart: Go could not build it (no network for its module?)" >&2
	exit 0
done
echo "no bart: it needs Go 1.$wanted or later (go.dev/dl)" >&2
