"""What the tests share: captures, made and collected, and the command that they are compared with."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
from pathlib import Path

import pytest

TIME_NS = 1_600_000_000_123_456_789


def udp(flow: int, payload: int = 20) -> bytes:
    """An Ethernet frame of a flow's client."""
    data = bytes(payload)
    datagram = struct.pack("!HHHH", 1024 + flow % 60_000, 9, 8 + len(data), 0) + data
    source = (0x0A000000 + flow).to_bytes(4, "big")
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, 0, 64, 17, 0)
    ip = header + source + socket.inet_aton("192.0.2.1")
    return bytes(6) + bytes(6) + b"\x08\x00" + ip + datagram


def pcap(frames: list[bytes]) -> bytes:
    """A capture in nanoseconds, a microsecond between two frames."""
    parts = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65_535, 1)]
    for number, frame in enumerate(frames):
        seconds, nanoseconds = divmod(TIME_NS + number * 1000, 1_000_000_000)
        parts.append(struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)))
        parts.append(frame)
    return b"".join(parts)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """3000 flows, some with two packets."""
    frames = [udp(flow) for flow in range(3000)] + [udp(flow, 300) for flow in range(1000)]
    path = tmp_path / "made.pcap"
    path.write_bytes(pcap(frames))
    return path


def corpus() -> list[Path]:
    """The captures of the folder that LOWROAD_CORPUS names."""
    folder = Path(os.environ.get("LOWROAD_CORPUS", "/nonexistent")) / "pcap"
    return sorted(folder.glob("*.pcap*")) if folder.is_dir() else []


class Command:
    """The command, as a user runs it."""

    def __init__(self, program: str) -> None:
        self.program = program

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.program, *map(str, words)], capture_output=True, text=True)

    def error(self, *words: str | Path) -> str:
        """What it says when it fails."""
        done = self.run(*words)
        assert done.returncode != 0, words
        return done.stderr.strip().splitlines()[-1].removeprefix("error: ")

    def account(self, *words: str | Path) -> dict[str, object]:
        return json.loads(self.run(*words, "--json").stdout)


@pytest.fixture(scope="session")
def command() -> Command:
    return Command(os.environ["LOWROAD"])
