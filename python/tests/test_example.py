"""The example runs, and makes its picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import corpus

EXAMPLE = Path(__file__).parents[1] / "examples" / "flows.py"


def test_the_example_makes_a_picture(capture: Path, tmp_path: Path) -> None:
    for path in [capture, *corpus()[:1]]:
        picture = tmp_path / f"{path.stem}.png"
        words = [sys.executable, str(EXAMPLE), str(path), str(picture)]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "packets_exported" in done.stdout
        assert picture.read_bytes().startswith(b"\x89PNG")
