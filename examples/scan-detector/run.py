#!/usr/bin/env python3
"""From traffic to verdicts: learns to tell scans and floods from ordinary traffic, and says how well.

    sudo python3 run.py [path of lowroad]

Makes two network namespaces, and in them traffic of three kinds, once to learn from and once to judge:
web requests and datagrams that are answered, a SYN scan, and a flood of datagrams. A decision tree learns
from lowroad's rows; then lowroad judges live traffic with it, on rows and in the kernel. What each phase
sent is known, so what was said of it can be counted. Needs root, iproute2, and a Python with scikit-learn
and pyarrow; nothing is downloaded, and nothing leaves the namespaces.
"""

import ctypes
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "python", "lowroad"))

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000

KINDS = ["benign", "scan", "flood"]
SERVER, CLIENT = "10.77.0.1", "10.77.0.2"
WEB, ECHO = 8080, 5353
# The kernel asks after these packets of a flow, so rows after each of them are learnt from.
EARLY = [1, 2, 4, 8]


def main(lowroad):
    names = [f"lr-{os.getpid()}-example-{end}" for end in ("server", "client")]
    with tempfile.TemporaryDirectory() as folder:
        try:
            network(*names)
            serve(names[0])
            train(lowroad, names, folder)
            report(judge(lowroad, names, folder))
        finally:
            for name in names:
                subprocess.run(["ip", "netns", "del", name], check=False)


# The network.


def network(server, client):
    for name in (server, client):
        run("ip", "netns", "add", name)
    run(*f"ip -n {server} link add eth0 type veth peer name eth0 netns {client}".split())
    for name, address in ((server, SERVER), (client, CLIENT)):
        run(*f"ip -n {name} address add {address}/24 dev eth0".split())
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


def benign(dice):
    for _ in range(80):
        if dice.random() < 0.5:
            with socket.create_connection((SERVER, WEB), timeout=20) as web:
                web.sendall(f"GET /{dice.randrange(100, 60000)} HTTP/1.0\r\n\r\n".encode())
                while web.recv(65536):
                    pass
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
                asks.settimeout(20)
                for _ in range(dice.randrange(1, 12)):
                    asks.sendto(os.urandom(dice.randrange(20, 200)), (SERVER, ECHO))
                    asks.recv(2048)
                    time.sleep(dice.uniform(0.001, 0.02))


def scan(dice):
    """SYNs as scanners make them: no options, one window for all."""
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    source = dice.randrange(40000, 60000)
    for port in dice.sample(range(1, 30000), 300):
        raw.sendto(syn(source, port, dice), (SERVER, 0))
        time.sleep(0.0005)


def syn(source, port, dice):
    ends = socket.inet_aton(CLIENT) + socket.inet_aton(SERVER)
    header = struct.pack("!HHIIBBHHH", source, port, dice.getrandbits(32), 0, 5 << 4, 2, 1024, 0, 0)
    words = struct.unpack("!16H", ends + struct.pack("!HH", 6, len(header)) + header)
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    return header[:16] + struct.pack("!H", checksum) + header[18:]


def flood(dice):
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(40)]
    for _ in range(60):
        for one in sockets:
            one.sendto(os.urandom(dice.randrange(400, 1200)), (SERVER, 9))
        time.sleep(0.001)


TRAFFIC = {"benign": benign, "scan": scan, "flood": flood}


# Learning.


def train(lowroad, names, folder):
    import numpy
    import pyarrow.parquet
    from sklearn.tree import DecisionTreeClassifier

    from trees import export_tree

    tables, labels = [], []
    for label, kind in enumerate(KINDS):
        capture = os.path.join(folder, f"{kind}.pcap")
        record(names, kind, capture, random.Random(f"learn {kind}"))
        for early in EARLY:
            rows = os.path.join(folder, "rows.parquet")
            options = ["--schema", "tree.v1", "--early", str(early), "-o", rows]
            run(lowroad, "features", "pcap", capture, *options)
            tables.append(pyarrow.parquet.read_table(rows))
            labels += [label] * tables[-1].num_rows
    # Ports say more of this example than of any network.
    columns = [name for name in tables[0].column_names if not name.endswith("_port")]
    x = numpy.concatenate(
        [numpy.column_stack([table[name].to_numpy() for name in columns]) for table in tables]
    ).astype("float64")
    model = DecisionTreeClassifier(max_depth=8, class_weight="balanced", random_state=1)
    model.fit(x, labels)
    export_tree(model, columns, os.path.join(folder, "trees.json"))
    with open(os.path.join(folder, "model.toml"), "w", encoding="utf-8") as out:
        out.write('name = "scan-detector"\ntrees = "trees.json"\nschema = "tree.v1"\n')
        out.write(f"packets = {{ first = {EARLY[0]}, last = {EARLY[-1]} }}\n")
        out.write(f"columns = {json.dumps([f'tree.v1/{name}' for name in columns])}\n")
        out.write("classes = [\n")
        out.write(''.join(f'    {{ name = "{kind}", action = "{action}" }},\n' for kind, action in
                          (("benign", "pass"), ("scan", "drop"), ("flood", "drop"))))
        out.write("]\n")
    say(f"learnt from {len(x)} rows: {model.tree_.node_count} nodes")
    run(lowroad, "features", "model", "check", os.path.join(folder, "model.toml"), quiet=False)


def record(names, kind, path, dice):
    """The frames that come in at the server, as a capture."""
    stop = threading.Event()
    ready = threading.Barrier(2)
    recorder = threading.Thread(target=inside, args=(names[0], write_pcap, path, ready, stop))
    recorder.start()
    ready.wait()
    inside(names[1], TRAFFIC[kind], dice)
    time.sleep(0.3)
    stop.set()
    recorder.join()


def write_pcap(path, ready, stop):
    ethernet, every = 1, 3
    taps = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(every))
    taps.bind(("eth0", every))
    taps.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    taps.settimeout(0.05)
    with open(path, "wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, ethernet))
        ready.wait()
        while not stop.is_set():
            try:
                frame, (_, _, way, _, _) = taps.recvfrom(65535)
            except TimeoutError:
                continue
            if way != socket.PACKET_OUTGOING:
                now = time.time_ns()
                out.write(struct.pack("<IIII", now // 10**9, now % 10**9, len(frame), len(frame)))
                out.write(frame)


# Judging.


def judge(lowroad, names, folder):
    """What was said of the flows of each kind: by the rows' scores, and by the kernel."""
    model = os.path.join(folder, "model.toml")
    said = {}
    for kind in KINDS:
        rows = os.path.join(folder, f"{kind}.jsonl")
        # In shadow mode: what is dropped has no second packet, and its row would be another.
        live = subprocess.Popen(
            [*enter(names[0]), lowroad, "features", "live", "eth0", "--datapath", "xdp-flow"]
            + ["--schema", "tree.v1", "--model", model, "--shadow", "--score", model]
            + ["--json", "-o", rows],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            attached(names[0], live)
            inside(names[1], TRAFFIC[kind], random.Random(f"judge {kind}"))
            time.sleep(0.3)
        finally:
            live.terminate()
        account = json.loads(live.communicate(timeout=60)[0])
        scored = [json.loads(line)["class"] for line in open(rows, encoding="utf-8")]
        kernel = account["model"]["flows"]
        said[kind] = {
            "rows": {name: scored.count(name) for name in KINDS},
            "kernel": {name: kernel.get(name, 0) for name in KINDS},
        }
    return said


def attached(name, live):
    """Waits until the program is on the device."""
    for _ in range(600):
        shown = subprocess.run(
            ["ip", "-n", name, "link", "show", "eth0"], capture_output=True, text=True, check=True
        )
        if "xdp" in shown.stdout:
            return
        if live.poll() is not None:
            sys.exit(f"lowroad ended early, with {live.returncode}")
        time.sleep(0.05)
    sys.exit("lowroad did not come up")


def report(said):
    for judge, about in (("rows", "scores of whole flows"), ("kernel", "the kernel, as it goes")):
        say(f"\n{about}: flows by what they were (down) and what was said of them (across)")
        say(" " * 10 + "".join(f"{kind:>9}" for kind in KINDS))
        for kind in KINDS:
            say(f"{kind:>10}" + "".join(f"{said[kind][judge][name]:>9}" for name in KINDS))
    say("")
    say(json.dumps(said))


# Small things.


def enter(name):
    return ["ip", "netns", "exec", name]


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
    main(sys.argv[1] if len(sys.argv) > 1 else "lowroad")
