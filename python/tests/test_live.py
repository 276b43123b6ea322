"""Live rows are those of a capture of the same frames, but for time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lowroad import features

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

CHILD = Path(__file__).with_name("live_in_namespace.py")


@pytest.mark.parametrize("datapath", [path.name for path in features.datapaths()])
def test_rows_of_an_interface(datapath: str, tmp_path: Path) -> None:
    words = ["unshare", "--net", sys.executable, str(CHILD), datapath, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done"


def test_interfaces_are_listed() -> None:
    (loopback,) = [one for one in features.interfaces() if one["name"] == "lo"]
    assert loopback["loopback"] and loopback["mtu"] > 0
