#!/usr/bin/env python3
"""From a capture to a blocked scan: capture, label, train, score, block.

    sudo python3 run.py [path of lowroad]

Makes two network namespaces, and in them traffic of three kinds: web requests and datagrams that are answered,
a SYN scan, and a flood of datagrams, each from an address of its own. Captures it, labels its flows by these
addresses, trains a decision tree (train.py), scores the capture, and then has the kernel drop what the tree
takes for a scan or a flood while the same kinds of traffic come again. What was sent is known, so what became of
it can be counted: the last line is that as JSON. Needs root, iproute2 and Python 3.9; nothing is downloaded, and
nothing leaves the namespaces.
"""

import collections
import csv
import ctypes
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000

SERVER = "10.77.0.1"
SENDERS = {"benign": "10.77.0.2", "scan": "10.77.0.3", "flood": "10.77.0.4"}
KINDS = list(SENDERS)
WEB, ECHO = 8080, 5353
# The kernel asks after the packets 1 to 8 of a flow, so rows after these packets are learnt from.
EARLY = [1, 2, 4, 8]


def main(lowroad):
    names = [f"lr-{os.getpid()}-example-{end}" for end in ("server", "client")]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            network(*names)
            serve(names[0])
            before = capture(lowroad, names)
            train(lowroad)
            scored = score(lowroad)
            blocked, account = block(lowroad, names)
        finally:
            for name in names:
                subprocess.run(["ip", "netns", "del", name], check=False)
    report({"scored": scored, "without": before, "blocked": blocked, "model": account["model"]})


# The steps.


def capture(lowroad, names):
    """Packets to capture.pcap, and labels for them; what the traffic came to without a model."""
    say("capture")
    with Live(lowroad, names[0], "--datapath", "tpacket", "-o", "flows.csv", "--pcap-out", "capture.pcap"):
        sent = send(names, "to learn from")
    with open("labels.csv", "w", encoding="utf-8") as out:
        out.write("src_ip,label\n")
        out.writelines(f"{address},{kind}\n" for kind, address in SENDERS.items())
    return sent


def train(lowroad):
    say("train")
    rows = []
    for early in EARLY:
        rows.append(f"rows-{early}.csv")
        run(lowroad, "features", "pcap", "capture.pcap", "--schema", "tree.v1", "--early", str(early),
            "--labels", "labels.csv", "-o", rows[-1])
    run(sys.executable, os.path.join(HERE, "train.py"), *rows, "--last", str(EARLY[-1]),
        "--drop", "scan", "--drop", "flood", "-o", "model", quiet=False)
    run(lowroad, "features", "model", "check", "model/model.toml", quiet=False)


def score(lowroad):
    """The classes of the capture's flows."""
    say("score")
    run(lowroad, "features", "score", "capture.pcap", "--model", "model/model.toml", "-o", "scored.csv")
    return classes("scored.csv", "class")


def block(lowroad, names):
    """What the same kinds of traffic come to while the kernel drops; its classes, and the account of the run."""
    say("block")
    model = ["--model", "model/model.toml", "-o", "blocked.csv"]
    with Live(lowroad, names[0], "--datapath", "xdp-flow", *model) as live:
        sent = send(names, "to judge")
    return {**sent, "classes": classes("blocked.csv", "kernel_class")}, live.account


class Live:
    """`lowroad features live eth0` in a namespace, from the first packet to the last."""

    def __init__(self, lowroad, name, *options):
        self.account = None
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind("ready.sock")
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", name, lowroad, "features", "live", "eth0", "--json", *options],
                stdout=subprocess.PIPE,
                env={**os.environ, "NOTIFY_SOCKET": os.path.abspath("ready.sock")},
            )
            while not select.select([ready], [], [], 0.1)[0]:
                if self.process.poll() is not None:
                    sys.exit(f"lowroad ended early, with {self.process.returncode}")
        os.unlink("ready.sock")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        time.sleep(0.2)
        self.process.terminate()
        account = self.process.communicate(timeout=60)[0]
        if self.process.returncode != 0:
            sys.exit(f"lowroad ended with {self.process.returncode}")
        self.account = json.loads(account)


def classes(path, column):
    """How many flows of each sender are of each class."""
    kinds = {address: kind for kind, address in SENDERS.items()}
    found = {kind: collections.Counter() for kind in KINDS}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["src_ip"] in kinds:
                found[kinds[row["src_ip"]]][row[column] or "none"] += 1
    return found


def report(told):
    say("\nflows by what they were (down) and the kernel's class (across)")
    say(" " * 10 + "".join(f"{kind:>9}" for kind in KINDS))
    for kind in KINDS:
        counts = told["blocked"]["classes"][kind]
        say(f"{kind:>10}" + "".join(f"{counts[name]:>9}" for name in KINDS))
    for name, done in (("without a model", told["without"]), ("with the model", told["blocked"])):
        say(f"{name}: {done['probes_answered']} of {done['probes']} probes of the scan were answered, "
            f"{done['requests_answered']} of {done['requests']} requests")
    say(json.dumps(told))


# The network.


def network(server, client):
    for name in (server, client):
        run("ip", "netns", "add", name)
    run(*f"ip -n {server} link add eth0 type veth peer name eth0 netns {client}".split())
    run(*f"ip -n {server} address add {SERVER}/24 dev eth0".split())
    for address in SENDERS.values():
        run(*f"ip -n {client} address add {address}/24 dev eth0".split())
    for name in (server, client):
        run(*f"ip -n {name} link set eth0 up".split())
        run(*f"ip -n {name} link set lo up".split())


def serve(name):
    """Answers web requests and datagrams, on threads that end with the program."""
    ready = threading.Barrier(3)
    for server in (web, echo):
        threading.Thread(target=inside, args=(name, server, ready), daemon=True).start()
    ready.wait()


def web(ready):
    listener = socket.create_server((SERVER, WEB), backlog=64)
    ready.wait()
    while True:
        taken, _ = listener.accept()
        with taken:
            request = taken.recv(4096)
            if request:
                size = int(request.split(b"/")[1].split()[0])
                taken.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * size)


def echo(ready):
    answers = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    answers.bind((SERVER, ECHO))
    ready.wait()
    while True:
        data, sender = answers.recvfrom(2048)
        answers.sendto(data * 2, sender)


# The traffic.


def send(names, seed):
    """Traffic of each kind, and what was answered of it."""
    sent = {}
    for kind, traffic in (("benign", benign), ("scan", scan), ("flood", flood)):
        inside(names[1], traffic, random.Random(f"{kind} {seed}"), sent)
    return sent


def benign(dice, sent):
    answered = [request(dice) if at % 2 else datagrams(dice) for at in range(40)]
    sent.update(requests=len(answered), requests_answered=sum(answered))


def request(dice):
    try:
        with socket.create_connection((SERVER, WEB), 5, (SENDERS["benign"], 0)) as web:
            size = dice.randrange(100, 60000)
            web.sendall(f"GET /{size} HTTP/1.0\r\n\r\n".encode())
            got = 0
            while data := web.recv(65536):
                got += len(data)
            return got > size
    except OSError:
        return False


def datagrams(dice):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        asks.bind((SENDERS["benign"], 0))
        asks.settimeout(5)
        try:
            for _ in range(dice.randrange(1, 12)):
                asks.sendto(os.urandom(dice.randrange(20, 200)), (SERVER, ECHO))
                asks.recv(2048)
                time.sleep(dice.uniform(0.001, 0.01))
        except OSError:
            return False
    return True


def scan(dice, sent):
    """SYNs as scanners make them: no options, one window for all. Each is answered, if only with a reset."""
    source, answered = dice.randrange(40000, 60000), set()
    ports = dice.sample(range(1, 30000), 200)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        raw.bind((SENDERS["scan"], 0))
        for port in ports:
            raw.sendto(syn(source, port, dice), (SERVER, 0))
            answered |= answers(raw, source, 0.0005)
        answered |= answers(raw, source, 0.3)
    sent.update(probes=len(ports), probes_answered=len(answered))


def answers(raw, source, seconds):
    """Ports from which something has come until nothing has come for so long."""
    ports = set()
    while select.select([raw], [], [], seconds)[0]:
        packet = raw.recv(2048)
        begin = 4 * (packet[0] & 15)
        port, to = struct.unpack("!HH", packet[begin:begin + 4])
        if to == source:
            ports.add(port)
    return ports


def syn(source, port, dice):
    ends = socket.inet_aton(SENDERS["scan"]) + socket.inet_aton(SERVER)
    header = struct.pack("!HHIIBBHHH", source, port, dice.getrandbits(32), 0, 5 << 4, 2, 1024, 0, 0)
    words = struct.unpack("!16H", ends + struct.pack("!HH", 6, len(header)) + header)
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return header[:16] + struct.pack("!H", checksum) + header[18:]


def flood(dice, _):
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(40)]
    for one in sockets:
        one.bind((SENDERS["flood"], 0))
    for _ in range(30):
        for one in sockets:
            try:
                one.sendto(os.urandom(dice.randrange(400, 1200)), (SERVER, 9))
            except ConnectionRefusedError:
                pass
        time.sleep(0.001)
    for one in sockets:
        one.close()


# Small things.


def inside(name, work, *arguments):
    """Does something on a thread that is in a namespace."""
    failed = []

    def there():
        with open(f"/run/netns/{name}", encoding="utf-8") as namespace:
            if LIBC.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "entering a namespace")
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001, handed to the thread that waits
            failed.append(error)

    thread = threading.Thread(target=there, daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def run(*command, quiet=True):
    out = subprocess.DEVNULL if quiet else None
    subprocess.run(command, check=True, stdout=out)


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "lowroad")
