"""Run by test_live.py in a network namespace of its own: a veth pair, and a datapath on one end."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from conftest import pcap, udp

import lowroad
from lowroad import features

FRAMES = [udp(flow) for flow in range(400)] + [udp(flow, 300) for flow in range(100)]
#: Of headers alone, as the kernel reads them.
SCHEMA = "ipfix"
#: What no clock is in.
COLUMNS = ["sourceIPv4Address", "sourceTransportPort", "packetTotalCount", "octetTotalCount"]


def ip(words: str) -> str:
    return subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True).stdout


def wait_until(what: str, holds) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


#: As many frames as any datapath has room for while it does not run.
BATCH = 125


def send(live: features.Live) -> None:
    """Sends all frames, each batch once the one before was seen: a busy machine loses none."""
    before = live.counters()["packets"]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind(("left", 0))
        for begin in range(0, len(FRAMES), BATCH):
            for frame in FRAMES[begin : begin + BATCH]:
                sender.send(frame)
            sent = before + min(begin + BATCH, len(FRAMES))
            wait_until("every frame was seen", lambda: live.counters()["packets"] >= sent)


def facts(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return sorted(tuple(row[name] for name in COLUMNS) for row in rows)


def main(datapath: str, folder: Path) -> None:
    # It takes packets away from everybody else.
    tap = datapath == "af-xdp"

    def start(**more: object) -> features.Live:
        return features.live("right", datapath=datapath, schema=SCHEMA, tap=tap, **more)

    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
    ip("link add left type veth peer name right")
    for name in ["left", "right"]:
        ip(f"link set {name} up")
    capture = folder / "frames.pcap"
    capture.write_bytes(pcap(FRAMES))
    expected: list[dict[str, object]] = []
    features.read_pcap(capture, schema=SCHEMA).each(expected.append)

    # Rows are pulled in another thread; this one stops the capture.
    live = start()
    rows: list[dict[str, object]] = []
    # A daemon: it must not outlive an assertion that fails.
    taker = threading.Thread(target=live.each, args=(rows.append,), daemon=True)
    taker.start()
    send(live)
    live.stop()
    taker.join()
    counters = live.counters()
    assert counters["packets"] == counters["packets_exported"] == len(FRAMES), counters
    assert (counters["rows"], counters["rows_lost"]) == (len(rows), 0), counters
    assert facts(rows) == facts(expected)

    # A duration ends it, through Arrow's stream as well.
    table = start(duration=0.2).to_pyarrow()
    assert table.num_rows == 0 and table.schema.names[0]

    # Leaving the block detaches, though rows were not taken.
    with start() as live:
        send(live)
    assert "xdp" not in json.dumps(json.loads(ip("-json link show right"))[0])

    # What the device has to say.
    live = start()
    try:
        start(splt=33)
    except lowroad.InputError as error:
        assert str(error) == "splt: 33 is not within 0 and 32"
    live.close()
    print("done")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
