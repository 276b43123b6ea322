#!/bin/sh
# Runs beside the services of boot.sh: uses each of them, reloads and stops them.
set -u
units="lowroad-relay lowroad-router lowroad-features@capture0 lowroad-features@flow0 lowroad-netbench lowroad-replicate
lowroad-replica"

fail() {
	echo "failed: $*"
	for unit in $units; do
		echo "== $unit: $(systemctl is-active "$unit")"
		tail -n 5 "/run/log-$unit.service"
	done
	exit 1
}

# Until a command succeeds, which may take 30 s on a busy machine.
await() {
	tries=0
	until "$@" >/run/last 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || fail "$* ($(tail -n 2 /run/last))"
		sleep 0.1
	done
}

has() {
	pattern=$1
	shift
	"$@" | grep -q -- "$pattern"
}

same() {
	diff -r /srv/app "$1"
}

for unit in $units; do
	await systemctl is-active --quiet "$unit"
	status=/proc/$(systemctl show -P MainPID "$unit")/status
	grep -q "NoNewPrivs:.*1" "$status" && grep -q "Seccomp:.*2" "$status" || fail "$unit has no restrictions"
done

await has "1 of 1 subscribers on the fast path" lowroad relay explain tc
await has relay_ingress ip -d link show xdp0
lowroad relay subscriber add recv second 192.0.2.2:6002 || fail "a new subscriber"
lowroad relay switch recv --datapath tc || fail "a switch"
await has "2 of 2 subscribers on the fast path" lowroad relay explain recv
printf '[[stream.subscriber]]\nname = "later"\nto = "198.51.100.2:6001"\n' >>/etc/lowroad/relay.toml
systemctl reload lowroad-relay || fail "reload of the relay"
await has later lowroad relay subscriber list xdp
authorization="Authorization: Bearer $(cat /etc/lowroad/token)"
await has lowroad_relay_received curl -sf -H "$authorization" http://127.0.0.1:8640/metrics

await has 9999 nft list table inet lowroad_router
echo 'drop,,,,9998,udp' >>/etc/lowroad/rules.csv
systemctl reload lowroad-router || fail "reload of the router"
await has 9998 nft list table inet lowroad_router
# A device and a route that come later.
ip link add late0 type veth peer name late1
ip link set late1 up
ip address add 203.0.113.1/24 dev late0
ip link set late0 up
await has 203.0.113.0 lowroad router routes

lowroad netbench run 127.0.0.1 --token-file /etc/lowroad/netbench-token --test tcp_rr,udp_rr --duration 100ms \
	>/run/last 2>&1 || fail "a test of netbench: $(cat /run/last)"
lowroad netbench run 127.0.0.1 --test tcp_rr --duration 100ms >/run/last 2>&1 && fail "a client without the token"

mkdir /srv/app/more
cp /bin/true /srv/app/more/
chown 1:1 /srv/app/more/true
chmod 4755 /srv/app/more/true
await same /srv/replica/tree
await same /var/lib/lowroad-replica/replica/tree
await has "1 1" stat -c "%u %g" /srv/replica/tree/more/true

systemctl stop $units || fail "stop"
for unit in $units; do
	[ "$(systemctl show -P Result "$unit")" = success ] || fail "$unit did not end in order"
done
for name in capture0 flow0; do
	ls /var/lib/lowroad-features/$name-*.parquet >/run/last 2>&1 || fail "no rows of $name"
done
if grep -l correct-horse /run/log-*; then
	fail "a token is in a log"
fi
echo "all services work"
