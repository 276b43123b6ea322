"""Rows come while a capture is read: in bounded memory, beside other threads, until Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import pcap, udp

from lowroad import features

MEMORY = """
import resource, sys
from lowroad import features

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

rows, before = 0, None
for batch in features.read_pcap(sys.argv[1], max_flows=1000):
    rows += len(batch)
    before = before or peak()
print(rows, peak() - before)
"""


def test_memory_does_not_grow_with_the_capture(tmp_path: Path) -> None:
    path = tmp_path / "scan.pcap"
    path.write_bytes(pcap([udp(flow) for flow in range(200_000)]))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True
    )
    rows, grown = map(int, done.stdout.split())
    assert rows == 200_000
    # The same rows at once take more than 150 MiB.
    assert grown < 24, f"{grown} MiB"


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("take", ["to_pyarrow", "to_polars", "each"])
def test_other_threads_run_meanwhile(pipe: Path, take: str) -> None:
    data = pcap([udp(flow) for flow in range(3000)])

    def write() -> None:
        with open(pipe, "wb", buffering=0) as file:
            for at in range(0, len(data), 10_000):
                file.write(data[at : at + 10_000])

    writer = threading.Thread(target=write)
    writer.start()
    flows = features.read_pcap(pipe)
    rows: list[object] = []
    if take == "each":
        flows.each(rows.append)
    else:
        rows = [None] * len(getattr(flows, take)())
    writer.join()
    assert len(rows) == 3000


ENDLESS = """
import sys, threading
from lowroad import features

keep = []
threading.Thread(target=lambda: keep.append(open(sys.argv[1], "wb")), daemon=True).start()
flows = features.read_pcap(sys.argv[1])
try:
    print("reading", flush=True)
    for row in [getattr(flows, sys.argv[2])()] if sys.argv[2] != "iterate" else flows:
        pass
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("take", ["iterate", "to_pyarrow", "to_polars", "to_pandas"])
def test_a_signal_interrupts_whoever_waits(pipe: Path, take: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, str(pipe), take], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "reading\n"
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0] == "interrupted\n"
