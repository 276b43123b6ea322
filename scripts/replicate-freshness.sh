#!/bin/bash
# Measures how fresh a replica is while programs write without a pause, on each file system:
#
#   sudo scripts/replicate-freshness.sh [--lowroad PROGRAM] [--seconds N] [--load WORD]... [FILE-SYSTEM]...
#
# File systems are images in memory, in a mount namespace that ends with the script. For each load it prints
#
#   epochs        epochs that ended while the load ran
#   gap_s         longest time without one
#   stale         epochs with a stale file
#   lag_ms        p50 and p99 of the time from a write until the replica has it
#   behind_s      oldest write that the replica lacked at any moment
#   amplification bytes that the capture read back for each byte of the pages that were dirty, counted by the capture
#                 (read_back_bytes / dirty_bytes of its status), and then by the program that wrote the pages
#
# and exits with 1 if a target is missed: an epoch each second, lag_ms p99 <= 1200, behind_s <= 2, amplification <= 4.
# Stores through a mapping on tmpfs are polled for, and have no amplification.
set -euo pipefail

if [ "${LOWROAD_FRESHNESS_INSIDE:-}" != 1 ]; then
    [ "$(id -u)" = 0 ] || { echo "needs root: run it with sudo" >&2; exit 3; }
    exec env LOWROAD_FRESHNESS_INSIDE=1 unshare --mount --propagation private "$0" "$@"
fi

exec python3 - "$@" <<'PYTHON'
import argparse, json, mmap, os, signal, subprocess, sys, tempfile, threading, time
from datetime import datetime

TARGETS = {"gap_s": 1.0, "lag_p99_ms": 1200.0, "behind_s": 2.0, "amplification": 4.0}
PAGE = 4096
# A replica that does not have a write so long after it never gets it.
TIMEOUT = 60

class Stream:
    """Writes that follow each other at an interval, each with its number in it."""
    def __init__(self, kind, name, interval):
        self.kind, self.name, self.interval = kind, name, interval

    def place(self, number):
        """The file and the offset of a write, and how many bytes it has."""
        if self.kind == "append":
            return self.name, number * 100, 100
        if self.kind == "create":
            return "%s%d" % (self.name, number % 500), 0, 8
        if self.kind == "random":
            return self.name, number * 7919 % 12800 * 8192, 8192
        return self.name, number * 4104 % (1 << 20), 8

    def fill(self, tree):
        size = {"random": 100 << 20, "store": 1 << 20}.get(self.kind)
        if size:
            with open(os.path.join(tree, self.name), "wb") as file:
                file.write(bytes(1 << 20) * (size >> 20))

    def run(self, tree, end, times):
        number, memory, descriptor = 0, None, None
        path = os.path.join(tree, self.name)
        if self.kind == "append":
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        elif self.kind != "create":
            descriptor = os.open(path, os.O_RDWR)
            if self.kind == "store":
                memory = mmap.mmap(descriptor, 1 << 20)
        begun = time.monotonic()
        while (now := time.monotonic()) < end and number < len(times):
            name, offset, length = self.place(number)
            bytes_ = (number + 1).to_bytes(8, "little") + bytes(length - 8)
            times[number] = now
            if memory:
                memory[offset:offset + 8] = bytes_
            elif self.kind == "create":
                with open(os.path.join(tree, name), "wb") as file:
                    file.write(bytes_)
            elif self.kind == "append":
                os.write(descriptor, bytes_)
            else:
                os.pwrite(descriptor, bytes_, offset)
            number += 1
            time.sleep(max(0.0, begun + number * self.interval - time.monotonic()))

class Seen:
    """What a replica has of a stream."""
    def __init__(self, stream, times):
        self.stream, self.times, self.next, self.lags = stream, times, 0, []
        self.pages = []

    def look(self, replica, now):
        opened = {}
        try:
            while self.next < len(self.times) and self.times[self.next] > 0:
                name, offset, _ = self.stream.place(self.next)
                if name not in opened:
                    opened[name] = os.open(os.path.join(replica, name), os.O_RDONLY)
                bytes_ = os.pread(opened[name], 8, offset)
                if int.from_bytes(bytes_, "little") < self.next + 1:
                    break
                self.lags.append(now - self.times[self.next])
                self.next += 1
        except FileNotFoundError:
            pass
        for descriptor in opened.values():
            os.close(descriptor)

    def behind(self, now):
        waits = self.next < len(self.times) and self.times[self.next] > 0
        return now - self.times[self.next] if waits else 0.0

def streams(kind, count, interval):
    return [Stream(kind, "%s%d-" % (kind, each), interval) for each in range(count)]

LOADS = {
    "append-10ms-x4": lambda: streams("append", 4, 0.01),
    "append-1ms": lambda: streams("append", 1, 0.001),
    "append-1ms-x4": lambda: streams("append", 4, 0.001),
    "create-2ms": lambda: streams("create", 1, 0.002),
    "random-8k-10ms": lambda: streams("random", 1, 0.01),
    "random-8k-2ms": lambda: streams("random", 1, 0.002),
    "store-10ms": lambda: streams("store", 1, 0.01),
    "store-1ms": lambda: streams("store", 1, 0.001),
}

def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

def mount(kind, at, memory):
    os.makedirs(at)
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", "size=1G", "tmpfs", at)
    elif kind == "overlay":
        layers = at + ".layers"
        mount("ext4", layers, memory)
        parts = {name: os.path.join(layers, name) for name in ("lower", "upper", "work")}
        for part in parts.values():
            os.mkdir(part)
        options = "lowerdir={lower},upperdir={upper},workdir={work}".format(**parts)
        run("mount", "-t", "overlay", "-o", options, "overlay", at)
    else:
        image = at + ".image"
        with open(image, "wb") as file:
            file.truncate(1 << 30)
        quiet = {"ext4": ["-q", "-F"], "xfs": ["-q", "-f"], "btrfs": ["-q", "-f"]}[kind]
        run("mkfs." + kind, *quiet, image)
        run("mount", "-o", "loop", image, at)
    tree = os.path.join(at, "tree")
    os.mkdir(tree)
    return tree

class Service:
    """A service with a capture and a replica of its log."""
    def __init__(self, lowroad, at, tree, tmpfs):
        self.lowroad, self.control = lowroad, at + ".sock"
        self.log, self.replica = at + ".log", os.path.join(at + ".replica", "tree")
        allow = 'allow = ["mmap"]\n' if tmpfs else ""
        with open(at + ".toml", "w") as file:
            file.write("""[replicate]
control = "%s"
[[capture]]
tree = "%s"
log = "%s"
%s[[apply]]
log = "%s"
to = "%s"
in_place = %d
allow_delete = true
""" % (self.control, tree, self.log, allow, self.log, at + ".replica", 16 << 20))
        command = [lowroad, "replicate", "run", "--config", at + ".toml"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline().startswith("ready"):
            sys.exit("the service did not start")

    def counters(self):
        """Bytes that the capture has read back, and bytes of the pages that were dirty."""
        command = [self.lowroad, "replicate", "--json", "status", "--control", self.control]
        status = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        counts = next(part["counts"] for part in status["parts"] if part["kind"] == "capture")
        return counts["read_back_bytes"], counts.get("dirty_bytes", 0)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(TIMEOUT)

def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0

def epochs(lowroad, log, begun, ended):
    """The times of the epochs of an interval, and how many of them have stale files."""
    printed = subprocess.run([lowroad, "replicate", "--json", "epochs", log, "--since",
        datetime.fromtimestamp(begun - 1).astimezone().isoformat()], check=True, stdout=subprocess.PIPE, text=True)
    times, stale = [], 0
    for line in printed.stdout.splitlines():
        epoch = json.loads(line)
        at = epoch["at_ns"] / 1e9
        if begun <= at <= ended:
            times.append(at)
            stale += epoch["stale"]["files"] > 0
    return times, stale

def dirtied(all_seen, times, offset):
    """Bytes of the distinct pages that were written between two epochs, of all of them."""
    writes = []
    for seen in all_seen:
        for number in range(seen.next):
            name, at, length = seen.stream.place(number)
            pages = range(at // PAGE, (at + length - 1) // PAGE + 1)
            writes.append((seen.times[number] + offset, [(name, page) for page in pages]))
    writes.sort()
    ends, total, pages = iter(times + [float("inf")]), 0, set()
    end = next(ends)
    for at, written in writes:
        while at > end:
            total += len(pages)
            pages, end = set(), next(ends)
        pages.update(written)
    return (total + len(pages)) * PAGE

def measure(kind, load, tree, service, arguments):
    replica = service.replica
    all_streams = LOADS[load]()
    for stream in all_streams:
        stream.fill(tree)
    count = int(arguments.seconds / min(stream.interval for stream in all_streams)) + 10
    shared = [mmap.mmap(-1, 8 * count) for _ in all_streams]
    times = [memoryview(each).cast("d") for each in shared]
    for stream in all_streams:
        path = os.path.join(replica, stream.name)
        wanted = os.path.join(tree, stream.name)
        until = time.monotonic() + TIMEOUT
        while os.path.exists(wanted) and not (os.path.exists(path)
                and os.path.getsize(path) == os.path.getsize(wanted)):
            if time.monotonic() > until:
                sys.exit("%s %s: the replica does not have the tree" % (kind, load))
            time.sleep(0.05)
    time.sleep(1.5)
    before, begun, offset = service.counters(), time.time(), time.time() - time.monotonic()
    end = time.monotonic() + arguments.seconds
    child = os.fork()
    if child == 0:
        threads = [threading.Thread(target=stream.run, args=(tree, end, each))
            for stream, each in zip(all_streams, times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(0)
    all_seen = [Seen(stream, each) for stream, each in zip(all_streams, times)]
    behind, ended = 0.0, None
    while True:
        now = time.monotonic()
        for seen in all_seen:
            seen.look(replica, now)
            behind = max(behind, seen.behind(now))
        if ended is None and os.waitpid(child, os.WNOHANG)[0] == child:
            ended = time.time()
        if ended and all(seen.behind(now) == 0.0 for seen in all_seen):
            break
        if now > end + TIMEOUT:
            sys.exit("%s %s: the replica does not get what was written" % (kind, load))
        time.sleep(0.002)
    time.sleep(1)
    after = service.counters()
    at, stale = epochs(arguments.lowroad, service.log, begun, ended)
    gaps = [b - a for a, b in zip([begun] + at, at + [ended])]
    lags = [lag for seen in all_seen for lag in seen.lags]
    read, dirty = after[0] - before[0], after[1] - before[1]
    written = dirtied(all_seen, at, offset)
    polled = kind == "tmpfs" and load.startswith("store")
    result = {
        "file_system": kind, "load": load, "epochs": len(at), "gap_s": max(gaps), "stale": stale,
        "lag_p50_ms": quantile(lags, 0.5) * 1e3, "lag_p99_ms": quantile(lags, 0.99) * 1e3, "behind_s": behind,
        "amplification": None if polled or not dirty else read / dirty,
        "amplification_of_writer": None if polled else read / written,
        "read_back_bytes": read, "dirty_bytes": dirty, "written_bytes": written,
    }
    missed = [name for name, limit in TARGETS.items() if (result[name] or 0) > limit]
    result["missed"] = missed
    for each in times:
        each.release()
    return result

def show(result):
    def number(name, digits):
        value = result[name]
        return "-" if value is None else "%.*f" % (digits, value)
    print("%-8s %-15s %7d %6s %6d %8s %8s %8s %6s %6s  %s" % (
        result["file_system"], result["load"], result["epochs"], number("gap_s", 2), result["stale"],
        number("lag_p50_ms", 1), number("lag_p99_ms", 1), number("behind_s", 2), number("amplification", 2),
        number("amplification_of_writer", 2), "missed: " + ", ".join(result["missed"]) if result["missed"] else ""),
        flush=True)

def main():
    parser = argparse.ArgumentParser(prog="replicate-freshness.sh")
    parser.add_argument("file_systems", nargs="*", metavar="FILE-SYSTEM")
    parser.add_argument("--lowroad", default="lowroad", help="the program to measure")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each load runs")
    parser.add_argument("--load", action="append", help="only loads whose name has this word")
    parser.add_argument("--json", action="store_true", help="print an object a line")
    arguments = parser.parse_args()
    kinds = arguments.file_systems or ["ext4", "xfs", "btrfs", "tmpfs", "overlay"]
    loads = [load for load in LOADS if not arguments.load or any(word in load for word in arguments.load)]
    if not arguments.json:
        print("%-8s %-15s %7s %6s %6s %8s %8s %8s %6s %6s" % ("fs", "load", "epochs", "gap_s", "stale", "lag_p50",
            "lag_p99", "behind_s", "amp", "amp_w"))
    memory = tempfile.mkdtemp()
    run("mount", "-t", "tmpfs", "tmpfs", memory)
    missed = False
    try:
        for kind in kinds:
            missed |= of_file_system(kind, loads, memory, arguments)
    finally:
        os.chdir("/")
        subprocess.run(["umount", "--lazy", memory])
        os.rmdir(memory)
    sys.exit(1 if missed else 0)

def of_file_system(kind, loads, memory, arguments):
    missed = False
    at = os.path.join(memory, kind)
    tree = mount(kind, at, memory)
    service = Service(arguments.lowroad, at, tree, kind == "tmpfs")
    try:
        for load in loads:
            result = measure(kind, load, tree, service, arguments)
            missed |= bool(result["missed"])
            print(json.dumps(result), flush=True) if arguments.json else show(result)
            for name in os.listdir(tree):
                os.unlink(os.path.join(tree, name))
            time.sleep(1)
    finally:
        service.stop()
    run("umount", at)
    return missed

main()
PYTHON
