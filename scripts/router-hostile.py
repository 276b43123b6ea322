#!/usr/bin/env python3
"""Give every importer of `lowroad router build` inputs of 1 MB that ask for much, and measure what they cost.

    scripts/router-hostile.py [--program lowroad] [--seconds 10] [--memory 512] [--only WORD] [--keep DIRECTORY]

Each input is read by a process of its own under a limit of CPU time and of memory. It is to be taken, or refused with one
error. The last line counts the inputs that failed; the exit code is 1 if any did.
"""

import argparse
import gzip
import itertools
import json
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time

SIZE = 1_000_000
random.seed(1)


def fill(head, unit, tail="", size=SIZE):
    """`head`, as many units as fit, `tail`; a unit is text, or a function of its number."""
    parts, used = [head], len(head) + len(tail)
    for number in itertools.count():
        part = unit(number) if callable(unit) else unit
        if used + len(part) > size:
            break
        parts.append(part)
        used += len(part)
    return "".join(parts) + tail


def address(number):
    return f"{10 + (number >> 24 & 63)}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def scattered(number):
    return address((number * 2654435761) & 0x3FFFFFFF)


def address6(number):
    bits = (number * 0x9E3779B97F4A7C15) & (2**64 - 1)
    groups = [f"{bits >> shift & 0xFFFF:x}" for shift in (48, 32, 16, 0)]
    return "2001:db8:" + ":".join(groups + ["0", "1"])


ANY4 = "0.0.0.1-255.255.255.254"
ANY6 = "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"

# Routes -------------------------------------------------------------------------------------------------------------


def routes():
    yield "plain", "line", "10.0.0.0/8 " + "x" * SIZE
    yield "plain", "no-line", "1" * SIZE
    yield "plain", "next-hops", fill("10.0.0.0/8", lambda n: " " + address(n))
    yield "plain", "groups", fill("", lambda n: f"{scattered(n)} " + " ".join(address(n + k) for k in range(40)) + "\n")
    yield "plain", "hosts", fill("", lambda n: f"{scattered(n)} {address(n)}\n")
    yield "plain", "hosts6", fill("", lambda n: f"{address6(n)} fe80::{n:x}\n")
    yield "plain", "depths6", fill("", lambda n: f"{address6(n // 80)}/{128 - n % 80}\n")
    yield "plain", "devices", fill("", lambda n: f"{scattered(n)} d{n}\n")
    yield "plain", "same", fill("", "10.0.0.0/8 1.1.1.1\n")
    yield "plain", "nul", "10.0.0.0/8\n" + "\0" * SIZE
    yield "ip-route", "line", fill("default", lambda n: f" nexthop via {address(n)} dev e{n} weight 1")
    yield "ip-route", "hops", fill("", lambda n: f"{scattered(n)}\n" + "".join(f"\tnexthop via {address(n + k)} dev e0 weight 1\n" for k in range(30)))
    yield "ip-route", "hops-of-one", fill("default\n", lambda n: f"\tnexthop via {address(n)} dev e{n} weight 1\n")
    yield "ip-route", "metrics", fill("", lambda n: f"10.0.0.0/8 via 1.1.1.1 dev e0 metric {n}\n")
    yield "ip-route", "words", fill("10.0.0.0/8 dev e0", " onlink")
    yield "ip-route-json", "nested", "[" * SIZE
    yield "ip-route-json", "nested-objects", '[{"dst":' + '{"a":' * (SIZE // 5)
    yield "ip-route-json", "hops", '[{"dst":"default","nexthops":[' + fill("", lambda n: f'{{"gateway":"{address(n)}","dev":"e","weight":1}},', size=SIZE - 80) + '{"dev":"e"}]}]'
    yield "ip-route-json", "flags", '[{"dst":"default","dev":"e","flags":[' + fill("", '"onlink",') + '""]}]'
    yield "ip-route-json", "entries", "[" + fill("", "{},") + "{}]"
    yield "ip-route-json", "string", '[{"dst":"' + "1" * SIZE + '"}]'
    yield "ip-route-json", "keys", "[{" + fill("", lambda n: f'"k{n}":1,') + '"dst":"default"}]'
    yield "bird", "hops", fill("Table master4:\n", lambda n: f"{scattered(n)}/32 unicast [s 00:00] * (200)\n" + "".join(f"\tvia {address(n + k)} on e0 weight 1\n" for k in range(30)))
    yield "bird", "hops-of-one", fill("Table master4:\n10.0.0.0/8 unicast [s 00:00] * (200)\n", lambda n: f"\tvia {address(n)} on e{n}\n")
    yield "bird", "tables", fill("", lambda n: f"Table t{n}:\n10.0.0.0/8 unicast [s 00:00] * (200)\n\tvia 1.1.1.1 on e0\n")
    yield "bird", "attributes", fill("Table master4:\n10.0.0.0/8 unicast [s 00:00] * (200)\n\tvia 1.1.1.1 on e0\n", "\tBGP.as_path: 1 2 3\n")
    yield "frr-json", "nested", '{"10.0.0.0/8":' + "[" * SIZE
    yield "frr-json", "hops", '{"10.0.0.0/8":[{"selected":true,"nexthops":[' + fill("", lambda n: f'{{"ip":"{address(n)}","interfaceName":"e","active":true}},') + "{}]}]}"
    yield "frr-json", "prefixes", "{" + fill("", lambda n: f'"{scattered(n)}/32":[{{"selected":true,"nexthops":[{{"ip":"{address(n)}","active":true}}]}}],') + '"0.0.0.0/0":[]}'
    yield "frr-json", "same", "{" + fill("", '"10.0.0.0/8":[{"selected":true}],') + '"0.0.0.0/0":[]}'
    yield "frr-json", "empty", '{"10.0.0.0/8":[' + fill("", "{},") + "{}]}"
    yield "pfx2as", "origin", "10.0.0.0\t8\t" + fill("1", "_1") + "\n"
    yield "pfx2as", "origins", fill("", lambda n: f"{scattered(n)}\t32\t{n}_{n + 1}\n")
    for name, content in mrt():
        yield "mrt", name, content


def record(kind, body, length=None):
    return struct.pack(">IHHI", 0, 13, kind, len(body) if length is None else length) + body


def peers(count):
    body = struct.pack(">IHH", 1, 0, count)
    return record(1, body + b"".join(struct.pack(">BIII", 2, n, n, n) for n in range(count)))


def rib(number, prefix, entries):
    length = bytes([8 * len(prefix)])
    return record(2, struct.pack(">I", number) + length + prefix + struct.pack(">H", len(entries)) + b"".join(entries))


def attributes(*items):
    packed = b"".join(struct.pack(">BBH", 0x50, kind, len(body)) + body for kind, body in items)
    return struct.pack(">H", len(packed)) + packed


def mrt():
    path = b"\x02\xff" + b"\0\0\0\1" * 255
    usual = attributes((1, b"\0"), (2, path[:6].replace(b"\xff", b"\1")), (3, b"\1\1\1\1"))
    entry = lambda peer, rest: struct.pack(">HI", peer, 0) + rest
    yield "length", record(1, b"", 0xFFFFFFFF) + b"\0" * SIZE
    yield "one-record", record(2, b"\0" * SIZE)
    yield "peers", peers(60000)
    yield "peer-tables", b"".join(peers(100) for _ in range(SIZE // 1320))
    yield "peer-count", record(1, struct.pack(">IHH", 1, 0, 65535)) * (SIZE // 20)
    short = b"".join(rib(n, struct.pack(">I", n * 65537 & 0xFFFFFFFF), [entry(0, usual)]) for n in range(SIZE // 50))
    yield "hosts", peers(1) + short
    many = [entry(n, usual) for n in range(20000)]
    yield "entries", peers(20000) + rib(0, b"\x0a", many)
    yield "count", peers(1) + record(2, struct.pack(">I", 0) + b"\x08\x0a" + b"\xff\xff")
    yield "path", peers(1) + rib(0, b"\x0a", [entry(0, attributes((2, path * 60)))] * 16)
    yield "path-distinct", peers(1) + b"".join(rib(n, struct.pack(">I", n << 8), [entry(0, attributes((2, path), (3, struct.pack(">I", n))))]) for n in range(900))
    yield "attributes", peers(1) + rib(0, b"\x0a", [entry(0, attributes(*[(9, b"")] * 16000))] * 15)
    yield "empty-records", record(2, b"") * (SIZE // 12)
    yield "unknown", record(9999, b"") * (SIZE // 12)


# Rules --------------------------------------------------------------------------------------------------------------

FILTER = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n"


def rules():
    for name, content in iptables():
        yield "iptables", name, content
    for name, content in nft():
        yield "nft", name, content
    yield "csv", "ranges4", fill("action,source,destination\n", f"drop,{ANY4},{ANY4}\n")
    yield "csv", "ranges6", fill("action,source,destination\n", f"drop,{ANY6},{ANY6}\n")
    yield "csv", "range6", fill("action,source\n", f"drop,{ANY6}\n")
    yield "csv", "columns", fill("action", ",action") + "\n" + fill("drop", ",drop") + "\n"
    yield "csv", "line", "action,source\ndrop," + "1" * SIZE
    yield "csv", "ports", fill("action,source_ports,destination_ports\n", lambda n: f"drop,{n % 60000}-{n % 60000 + 5000},{n * 7 % 60000}-{n * 7 % 60000 + 3000}\n")
    yield "csv", "hosts", fill("action,source,destination\n", lambda n: f"drop,{scattered(n)},{scattered(n + 77)}\n")
    yield "csv", "cross", fill("action,source,destination\n", lambda n: f"drop,{scattered(n)}/{n % 32 + 1},\n" if n % 2 else f"drop,,{scattered(n)}/{n % 32 + 1}\n")
    yield "csv", "cross6", fill("action,source,destination\n", lambda n: f"drop,{address6(n)}/{n % 128 + 1},\n" if n % 2 else f"drop,,{address6(n)}/{n % 128 + 1}\n")
    yield "csv", "any", fill("action\n", "drop\n")
    yield "json", "nested", "[" * SIZE
    yield "json", "nested-objects", '[{"action":' + '{"a":' * (SIZE // 5)
    yield "json", "keys", "[{" + fill("", lambda n: f'"k{n}":"",') + '"action":"drop"}]'
    yield "json", "ranges6", "[" + fill("", f'{{"action":"drop","source":"{ANY6}","destination":"{ANY6}"}},') + '{"action":"drop"}]'
    yield "json", "string", '[{"action":"' + "\\u0041" * (SIZE // 6) + '"}]'
    yield "json", "empty", "[" + fill("", "{},") + "{}]"
    port = lambda n: f"{n % 60000} : {n % 60000 + 5000}"
    yield "classbench", "ports", fill("", lambda n: f"@{scattered(n)}/{n % 33} {scattered(n * 3)}/{n % 31} {port(n)} {port(n * 7)} 0x06/0xFF\n")
    yield "classbench", "line", "@10.0.0.0/8 " + "1" * SIZE
    yield "classbench", "any", fill("", "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n")
    yield "classbench", "masks", fill("", lambda n: f"@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x{n % 256:02x}/0x{n * 31 % 256:02x}\n")


def iptables():
    chains = "".join(f":c{n} - [0:0]\n" for n in range(1, 64))
    twice = "".join(f"-A c{n} -j c{n + 1}\n" * 2 for n in range(1, 63))
    yield "jumps", FILTER + chains + "-A FORWARD -j c1\n" + twice + "COMMIT\n"
    some = lambda n: f"-A c{n % 63 + 1} -s {scattered(n)} -j c{min(n % 63 + 2, 63)}\n"
    yield "jumps-of-some", fill(FILTER + chains + "-A FORWARD -j c1\n", some, "COMMIT\n")
    yield "cycle", FILTER + ":a - [0:0]\n:b - [0:0]\n-A FORWARD -j a\n" + fill("", "-A a -j b\n-A b -j a\n") + "COMMIT\n"
    yield "self", FILTER + ":a - [0:0]\n-A FORWARD -j a\n" + fill("", "-A a -j a\n") + "COMMIT\n"
    deep = SIZE // 40
    yield "deep", FILTER + "".join(f":c{n} - [0:0]\n" for n in range(deep)) + "-A FORWARD -j c0\n" + "".join(f"-A c{n} -j c{n + 1}\n" for n in range(deep - 1)) + "COMMIT\n"
    yield "chains", fill(FILTER, lambda n: f":c{n} - [0:0]\n", "COMMIT\n")
    yield "tables", fill("", "*filter\nCOMMIT\n")
    yield "range4", fill(FILTER, f"-A FORWARD -m iprange --src-range {ANY4} --dst-range {ANY4} -j DROP\n", "COMMIT\n")
    yield "range6", "# Generated by ip6tables-save\n" + fill(FILTER, f"-A FORWARD -m iprange --src-range {ANY6} --dst-range {ANY6} -j DROP\n", "COMMIT\n")
    ports = ",".join(str(n) for n in range(2, 32, 2))
    yield "ports", fill(FILTER, f"-A FORWARD -p tcp -m multiport --sports {ports} -m multiport --dports {ports} -j DROP\n", "COMMIT\n")
    yield "returns", fill(FILTER + ":r - [0:0]\n-A FORWARD -j r\n-A FORWARD -j DROP\n", lambda n: f"-A r -s {scattered(n)} -d {scattered(n * 3 + 1)} -p tcp --dport {n % 65535} -j RETURN\n", "COMMIT\n")
    yield "negations", fill(FILTER + ":r - [0:0]\n-A FORWARD -j r\n-A FORWARD -j DROP\n", lambda n: f"-A r ! -s {scattered(n)} ! -d {scattered(n * 3)} -p tcp ! --dport {n % 65535} -j RETURN\n", "COMMIT\n")
    yield "negated-drops", fill(FILTER, lambda n: f"-A FORWARD ! -s {scattered(n)} ! -d {scattered(n * 3)} -j DROP\n", "COMMIT\n")
    yield "lists", FILTER + fill("-A FORWARD -s 10.0.0.0", lambda n: f",{scattered(n)}", size=SIZE // 2) + fill(" -d 10.0.0.0", lambda n: f",{scattered(n)}", size=SIZE // 2) + " -j DROP\nCOMMIT\n"
    yield "quote", FILTER + '-A FORWARD -m comment --comment "' + "a" * SIZE
    yield "words", FILTER + fill("-A FORWARD", " -m comment", size=SIZE) + " -j DROP\nCOMMIT\n"
    yield "hosts", fill(FILTER, lambda n: f"-A FORWARD -s {scattered(n)} -d {scattered(n + 9)} -j DROP\n", "COMMIT\n")
    yield "sets", fill(FILTER, lambda n: f"-A FORWARD -m set --match-set s{n} src -j DROP\n", "COMMIT\n")
    yield "unknown", fill(FILTER, "-A FORWARD -m string --algo bm --string x -j DROP\n", "COMMIT\n")
    # ipset's own form, of which iptables-save has only the names.
    yield "ipset-save", fill("create s hash:ip family inet\n", lambda n: f"add s {scattered(n)}\n")


def nft():
    chain = lambda name, hook=True: {"chain": {"family": "inet", "table": "f", "name": name, "handle": 1, **({"type": "filter", "hook": "forward", "prio": 0, "policy": "accept"} if hook else {})}}
    rule = lambda where, *parts: {"rule": {"family": "inet", "table": "f", "chain": where, "handle": 9, "expr": list(parts)}}
    match = lambda field, value, op="==", protocol="ip": {"match": {"op": op, "left": {"payload": {"protocol": protocol, "field": field}}, "right": value}}
    head = [{"metainfo": {"json_schema_version": 1}}, {"table": {"family": "inet", "name": "f", "handle": 1}}, chain("c")]
    listing = lambda *entries: json.dumps({"nftables": head + list(entries)}, separators=(",", ":"))
    hosts = lambda count, step=1: [scattered(n * step) for n in range(count)]
    drop = {"drop": None}
    yield "nested", '{"nftables":' + "[" * SIZE
    yield "nested-objects", '{"nftables":[{"rule":' + '{"a":' * (SIZE // 5)
    yield "nested-set", '{"nftables":[{"table":{"family":"inet","name":"f"}},{"rule":{"family":"inet","table":"f","chain":"c","expr":[{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":' + '{"set":[' * (SIZE // 8)
    yield "entries", '{"nftables":[' + fill("", '{"metainfo":{}},') + "{}]}"
    yield "empty", '{"nftables":[' + fill("", "{},") + "{}]}"
    yield "set", listing(rule("c", match("saddr", {"set": hosts(50000)}), drop))
    yield "set-product", listing(rule("c", match("saddr", {"set": hosts(22000)}), match("daddr", {"set": hosts(22000, 3)}), drop))
    wide = [{"range": [address(n * 977), address(n * 977 + 900)]} for n in range(9000)]
    yield "range-product", listing(rule("c", match("saddr", {"set": wide}), match("daddr", {"set": wide}), drop))
    yield "not-product", listing(rule("c", match("saddr", {"set": hosts(22000)}, "!="), match("daddr", {"set": hosts(22000, 3)}, "!="), drop))
    everything6 = {"range": ["::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"]}
    both6 = rule("c", match("saddr", everything6, protocol="ip6"), match("daddr", everything6, protocol="ip6"), drop)
    yield "ranges6", listing(*[both6] * 2500)
    key = {"concat": [{"payload": {"protocol": "ip", "field": "saddr"}}, {"payload": {"protocol": "ip", "field": "daddr"}}, {"payload": {"protocol": "udp", "field": "dport"}}]}
    parts = [{"concat": [scattered(n), scattered(n * 3), n % 65536]} for n in range(17000)]
    for op, name in (("==", "concat"), ("!=", "not-concat")):
        yield name, listing(rule("c", {"match": {"op": op, "left": key, "right": {"set": parts}}}, drop))
    any4 = {"range": ["0.0.0.1", "255.255.255.254"]}
    yield "concat-ranges", listing(rule("c", {"match": {"op": "==", "left": key, "right": {"set": [{"concat": [any4, any4, {"range": [n, n + 9]}]} for n in range(8000)]}}}, drop))
    yield "returns", listing(chain("r", False), rule("c", {"jump": {"target": "r"}}), rule("c", drop), *[rule("r", match("saddr", scattered(n)), match("daddr", scattered(n * 3)), {"return": None}) for n in range(3400)])
    jumps = [{"jump": {"target": f"c{n}"}} for n in range(70)]
    yield "jumps", listing(*[chain(f"c{n}", False) for n in range(70)], rule("c", jumps[0]), *[rule(f"c{n}", jumps[n + 1]) for n in range(69) for _ in range(2)])
    yield "jumps-of-some", listing(*[chain(f"c{n}", False) for n in range(70)], rule("c", jumps[0]), *[rule(f"c{n % 69}", match("saddr", scattered(n)), jumps[n % 69 + 1]) for n in range(4500)])
    deep = SIZE // 160
    yield "deep", listing(*[chain(f"c{n}", False) for n in range(deep)], rule("c", jumps[0]), *[rule(f"c{n}", {"jump": {"target": f"c{n + 1}"}}) for n in range(deep - 1)])
    yield "gotos", listing(*[chain(f"c{n}", False) for n in range(deep)], rule("c", {"goto": {"target": "c0"}}), *[rule(f"c{n}", {"goto": {"target": f"c{n + 1}"}}) for n in range(deep - 1)])
    yield "cycle", listing(chain("a", False), chain("b", False), rule("c", {"jump": {"target": "a"}}), rule("a", {"jump": {"target": "b"}}), rule("b", {"jump": {"target": "a"}}))
    verdicts = [[scattered(n), {"jump": {"target": f"c{n % 70}"}}] for n in range(14000)]
    yield "vmap", listing(*[chain(f"c{n}", False) for n in range(70)], rule("c", {"vmap": {"key": {"payload": {"protocol": "ip", "field": "saddr"}}, "data": {"set": verdicts}}}))
    named = {"set": {"family": "inet", "name": "s", "table": "f", "type": "ipv4_addr", "handle": 2, "elem": hosts(20000)}}
    yield "named-set", listing(named, *[rule("c", match("saddr", "@s"), drop)] * 3000)
    yield "named-product", listing(named, *[rule("c", match("saddr", "@s"), match("daddr", "@s"), drop)] * 2000)
    yield "masks", listing(*[rule("c", {"match": {"op": "==", "left": {"&": [{"payload": {"protocol": "ip", "field": "saddr"}}, "85.85.85.85"]}, "right": "0.0.0.1"}}, drop)] * 3500)
    yield "bits", listing(*[rule("c", {"match": {"op": "!=", "left": {"&": [{"payload": {"protocol": "tcp", "field": "dport"}}, 21845]}, "right": 1}}, drop)] * 3500)
    yield "string", '{"nftables":[{"rule":{"comment":"' + "a" * SIZE + '"}}]}'
    yield "rules", listing(*[rule("c", match("saddr", scattered(n)), match("daddr", scattered(n * 3)), drop) for n in range(4000)])


def packed():
    """Inputs that become 1 GB: of each importer one that repeats a line or an entry."""
    text = {
        "plain": ("", b"10.0.0.0/8 1.1.1.1\n", ""),
        "ip-route": ("", b"10.0.0.0/8 via 1.1.1.1 dev e0\n", ""),
        "ip-route-json": ("[", b'{"dst":"10.0.0.0/8","dev":"e"},', "{}]"),
        "frr-json": ("{", b'"10.0.0.0/8":[],', '"0.0.0.0/0":[]}'),
        "pfx2as": ("", b"10.0.0.0\t8\t1\n", ""),
        "bird": ("Table master4:\n", b"10.0.0.0/8 unicast [s 00:00] * (200)\n\tvia 1.1.1.1 on e0\n", ""),
        "iptables": (FILTER, b"-A FORWARD -j DROP\n", "COMMIT\n"),
        "nft": ('{"nftables":[', b'{"metainfo":{}},', "{}]}"),
        "csv": ("action\n", b"drop\n", ""),
        "json": ("[", b'{"action":"drop"},', '{"action":"drop"}]'),
        "classbench": ("", b"@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00\n", ""),
    }
    for importer, (head, unit, tail) in text.items():
        block = unit * (1_000_000 // len(unit))
        yield importer, "packed", gzip.compress(head.encode()) + gzip.compress(block, 9) * 250 + gzip.compress(tail.encode())
    yield "mrt", "packed", gzip.compress(peers(1)) + gzip.compress(record(2, b"") * 80000, 9) * 250


RULES = ["iptables", "nft", "csv", "json", "classbench"]


def resident(process):
    """The memory that a process uses, in MiB: the lookup tables reserve addresses, and use few of them."""
    try:
        with open(f"/proc/{process}/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() >> 20
    except (FileNotFoundError, ProcessLookupError):
        return 0


def run(program, importer, file, seconds, memory):
    """The time of the CPU in seconds, the memory in MiB, the exit status and the lines of errors."""
    what = "rules" if importer in RULES else "rib"

    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    command = [program, "router", "build", f"--{what}", file, f"--{what}-format", importer]
    with tempfile.TemporaryFile() as errors:
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit)
        ended, status, usage = os.wait4(started.pid, os.WNOHANG)
        while not ended:
            if resident(started.pid) > memory:
                started.kill()
            time.sleep(0.01)
            ended, status, usage = os.wait4(started.pid, os.WNOHANG)
        started.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read(1 << 20).decode(errors="replace").strip().splitlines()
    used = usage.ru_utime + usage.ru_stime
    return used, usage.ru_maxrss >> 10, started.returncode, said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="lowroad")
    parser.add_argument("--seconds", type=int, default=10, help="CPU time of an import")
    parser.add_argument("--memory", type=int, default=512, help="memory of an import, in MiB")
    parser.add_argument("--only", default="", help="only inputs whose name has this word")
    parser.add_argument("--keep", help="keep the inputs that fail in this directory")
    options = parser.parse_args()
    failed = count = 0
    with tempfile.TemporaryDirectory() as directory:
        for importer, name, content in itertools.chain(routes(), rules(), packed()):
            title = f"{importer}/{name}"
            if options.only not in title:
                continue
            content = content.encode() if isinstance(content, str) else content
            file = os.path.join(directory, "input")
            with open(file, "wb") as out:
                out.write(content)
            seconds, used, status, said = run(options.program, importer, file, options.seconds, options.memory)
            # Taken, or refused for its content: one line, and what can be done about it.
            good = status == 0 or (status == 2 and len(said) <= 2 and said[0].startswith("error: "))
            good = good and used <= options.memory
            failed += not good
            count += 1
            last = said[0][:110] if said else ""
            last = last.replace(directory + "/", "")
            print(f"{'ok  ' if good else 'FAIL'} {title:32} {len(content):8} bytes {seconds:6.2f} s {used:5} MiB  exit {status}  {last}", flush=True)
            if not good and options.keep:
                os.makedirs(options.keep, exist_ok=True)
                with open(os.path.join(options.keep, title.replace("/", "-")), "wb") as out:
                    out.write(content)
    print(f"inputs {count}  failed {failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
