#!/bin/bash
# Measures the memory that replicate needs for each file of a tree:
#
#   sudo scripts/replicate-memory.sh [FILES] [PROGRAM]
#
# It makes trees of 1000 and of FILES (200000) small files in memory, in a mount namespace that ends with the script, and
# prints the largest resident set of a capture during its first copy, of a capture that continues the log, and of apply. The
# last column is the difference between the two trees for each file.
set -euo pipefail
files=${1:-200000}
lowroad=${2:-lowroad}
if [ "${LOWROAD_MEMORY_INSIDE:-}" != 1 ]; then
    [ "$(id -u)" = 0 ] || { echo "needs root: run it with sudo" >&2; exit 3; }
    exec env LOWROAD_MEMORY_INSIDE=1 unshare --mount --propagation private "$0" "$files" "$lowroad"
fi
place=$(mktemp -d)
started=
leave() {
    [ -z "$started" ] || kill -KILL $started 2>/dev/null || true
    umount --lazy "$place"
    rmdir "$place"
}
trap leave EXIT
mount -t tmpfs -o size=90% tmpfs "$place"

# ready PROCESS: waits until it prints that it is
ready() {
    started=$1
    until grep -q ready "$place/out"; do
        kill -0 "$1" || { cat "$place/err" >&2; exit 1; }
        sleep 0.1
    done
}
# largest PROCESS: its largest resident set in KiB; ends it
largest() {
    awk '/VmHWM/ { print $2 }' "/proc/$1/status"
    kill -TERM "$1"
    wait "$1" || true
    started=
}
# sizes COUNT: of the three, one a line
sizes() {
    local at=$place/$1
    mkdir -p "$at/disk"
    truncate -s $(((1 << 30) + $1 * 6000)) "$at/image"
    mkfs.ext4 -q -F -m 0 -N $(($1 + $1 / 10 + 20000)) "$at/image"
    mount -o loop "$at/image" "$at/disk"
    python3 - "$at/disk/tree" "$1" <<'PYTHON'
import os, sys
tree, count = sys.argv[1], int(sys.argv[2])
for number in range(count):
    folder = "%s/directory-%05d" % (tree, number // 1000)
    if number % 1000 == 0:
        os.makedirs(folder)
    with open("%s/file-%08d.dat" % (folder, number), "wb") as file:
        file.write(b"x" * 20)
PYTHON
    for _ in first second; do
        "$lowroad" replicate capture --tree "$at/disk/tree" --to "$at/log" >"$place/out" 2>"$place/err" &
        ready $!
        largest $!
    done
    "$lowroad" replicate apply "$at/log" --to "$at/replica" --follow >"$place/out" 2>"$place/err" &
    ready $!
    largest $!
    umount "$at/disk"
    rm -r "$at"
}

sizes 1000 >"$place/few"
sizes "$files" >"$place/many"
printf '%-22s %12s %12s %12s\n' "" "1000 files" "$files files" "B per file"
printf 'first copy\ncontinued capture\napply\n' | paste -d '|' - "$place/few" "$place/many" |
    awk -F '|' -v more=$((files - 1000)) \
        '{ printf "%-22s %8d KiB %8d KiB %12.0f\n", $1, $2, $3, ($3 - $2) * 1024 / more }'
