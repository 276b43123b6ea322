#!/bin/sh
# Builds the DPDK peers into FOLDER. Needs gcc, pkg-config and libdpdk-dev.
set -eu
out=${1:?usage: build.sh FOLDER}
here=$(dirname "$0")
# No symbol names the ring driver of memory pools, yet rte_fib needs it when it runs.
cc -O3 -Wall -Wextra $(pkg-config --cflags libdpdk) "$here/lpm.c" -o "$out/dpdk-lpm" \
    $(pkg-config --libs libdpdk) -Wl,--no-as-needed -lrte_mempool_ring
cc -O3 -march=native -Wall -Wextra $(pkg-config --cflags libdpdk) "$here/acl.c" -o "$out/dpdk-acl" \
    $(pkg-config --libs libdpdk)
