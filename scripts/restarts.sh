#!/bin/bash
# Restarts a container many times beside a running relay or router, and shows what the process holds afterwards:
#
#   sudo scripts/restarts.sh relay|router [DATAPATH] [RESTARTS] [PROGRAM]
#
# The container is a network namespace behind a veth of its own. With `relay` (DATAPATH tc) it is a subscriber that is added
# and removed; with `router` (DATAPATH xdp) it is the next hop of a route. The files, BPF programs, maps and links of the
# process after 10 restarts and after all (1000) have to be the same, its memory within 4 MiB, and so has the number of
# entries in its BPF maps where `bpftool` is there. The exit code is 1 if they are not.
set -euo pipefail
job=${1:?usage: restarts.sh relay|router [DATAPATH] [RESTARTS] [PROGRAM]}
datapath=${2:-$([ "$job" = relay ] && echo tc || echo xdp)}
restarts=${3:-1000}
lowroad=$(command -v "${4:-lowroad}")
warm=10
[ "$(id -u)" = 0 ] || { echo "needs root: run it with sudo" >&2; exit 3; }
[ "$restarts" -gt "$warm" ] || { echo "RESTARTS is more than $warm" >&2; exit 2; }
host=lr-restarts-$$
process=
folder=$(mktemp -d)
leave() {
    [ -z "$process" ] || { kill -TERM "$process" 2>/dev/null; wait "$process" || true; }
    for space in "$host" "$host-source" "$host-container"; do ip netns delete "$space" 2>/dev/null || true; done
    rm -r "$folder"
}
trap leave EXIT
inside() { ip netns exec "$host" "$@"; }
control="$folder/control.sock"

ip netns add "$host"
ip netns add "$host-source"
ip -n "$host" link set lo up
ip -n "$host-source" link add s0 type veth peer name in0 netns "$host"
ip -n "$host-source" address add 10.77.0.1/24 dev s0
ip -n "$host" address add 10.77.0.2/24 dev in0
ip -n "$host-source" link set s0 up
ip -n "$host" link set in0 up
ip -n "$host-source" route add default via 10.77.0.2
inside sysctl -qw net.ipv4.ip_forward=1
case $job in
relay)
    printf '[relay]\ncontrol = "%s"\n[[stream]]\nname = "s"\nlisten = "10.77.0.2:5004"\ndatapath = "%s"\nsource = "any"\n' \
        "$control" "$datapath" >"$folder/relay.toml"
    ip netns exec "$host" "$lowroad" relay serve --config "$folder/relay.toml" >"$folder/out" 2>"$folder/err" & ;;
router)
    ip netns exec "$host" "$lowroad" router run --datapath "$datapath" --interface in0 --control "$control" \
        >"$folder/out" 2>"$folder/err" & ;;
*) echo "relay or router, and not $job" >&2; exit 2 ;;
esac
# `ip` becomes the program: its process is the program's.
process=$!
until [ -S "$control" ]; do
    kill -0 "$process" || { cat "$folder/err" >&2; exit 1; }
    sleep 0.1
done

# restart: one life of the container
restart() {
    ip netns add "$host-container"
    ip -n "$host" link add c0 type veth peer name eth0 netns "$host-container"
    ip -n "$host" address add 10.78.0.1/24 dev c0
    ip -n "$host-container" address add 10.78.0.2/24 dev eth0
    ip -n "$host" link set c0 up
    ip -n "$host-container" link set eth0 up
    if [ "$job" = relay ]; then
        inside "$lowroad" relay subscriber add s c 10.78.0.2:6000 --control "$control"
    else
        ip -n "$host" route add 10.79.0.0/16 via 10.78.0.2 dev c0
    fi
    ip netns exec "$host-source" bash -c 'for at in 1 2 3; do echo x >/dev/udp/10.77.0.2/5004; echo x >/dev/udp/10.79.0.1/9; done'
    ip netns delete "$host-container"
    # A veth goes with its namespace, but not at once.
    ip -n "$host" link delete c0 2>/dev/null || true
    if [ "$job" = relay ]; then
        inside "$lowroad" relay subscriber remove s c --control "$control"
    fi
}
# held: what the process holds, and its memory in KiB on the second line
held() {
    # What the relay or router does once a second is done.
    sleep 3
    local id maps
    echo -n "files $(ls "/proc/$process/fd" | wc -l)"
    for id in prog_id map_id link_id; do
        echo -n "  $id $(cat "/proc/$process/fdinfo/"* 2>/dev/null | awk -v id="$id:" '$1 == id { print $2 }' | sort -u | wc -l)"
    done
    if command -v bpftool >/dev/null; then
        maps=$(cat "/proc/$process/fdinfo/"* 2>/dev/null | awk '$1 == "map_id:" { print $2 }' | sort -u)
        # Arrays always have all of their entries.
        echo -n "  entries $(for id in $maps; do bpftool map show id "$id" | grep -q hash && bpftool -j map dump id "$id" | grep -o '"key"' || true; done | wc -l)"
    fi
    echo
    awk '/^VmRSS/ { print $2 }' "/proc/$process/status"
}
for at in $(seq "$warm"); do restart; done
mapfile -t first < <(held)
for at in $(seq $((restarts - warm))); do restart; done
mapfile -t last < <(held)
printf 'after %5d  %s  memory %d KiB\n' "$warm" "${first[@]}" "$restarts" "${last[@]}"
[ "${first[0]}" = "${last[0]}" ] || { echo "the process holds more than before" >&2; exit 1; }
[ "${last[1]}" -le $((first[1] + 4096)) ] || { echo "its memory grows" >&2; exit 1; }
