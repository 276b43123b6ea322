"""Errors are the command's, in one line."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from conftest import Command

import lowroad
from lowroad import features


def test_files_that_cannot_be_read(command: Command, tmp_path: Path) -> None:
    text = tmp_path / "text.pcap"
    text.write_text("no capture at all, only words")
    for path in [tmp_path / "missing.pcap", text]:
        expected = command.error("features", "pcap", path, "-o", tmp_path / "rows.csv")
        with pytest.raises(lowroad.InputError) as raised:
            features.read_pcap(path).to_pyarrow()
        assert str(raised.value) == expected
    # The command reads the captures in a directory.
    with pytest.raises(lowroad.InputError, match="is a folder"):
        features.read_pcap(tmp_path).to_pyarrow()


def test_a_capture_that_breaks_off(command: Command, capture: Path, tmp_path: Path) -> None:
    capture.write_bytes(capture.read_bytes()[:-1])
    expected = command.error("features", "pcap", capture, "-o", tmp_path / "rows.csv")
    assert "the rows of what came before" in expected
    takers = [
        lambda flows: flows.to_pyarrow(),
        lambda flows: flows.to_polars(),
        lambda flows: flows.to_pandas(),
        lambda flows: flows.each(lambda row: None),
    ]
    for take in takers:
        with pytest.raises(lowroad.InputError) as raised:
            take(features.read_pcap(capture))
        assert str(raised.value) == expected
    flows = features.read_pcap(capture, partial=True)
    assert flows.to_pyarrow().num_rows == 3000
    assert flows.counters()["fault"] in expected


def test_another_library_that_meets_the_error_has_its_words(capture: Path) -> None:
    capture.write_bytes(capture.read_bytes()[:-1])
    with pytest.raises(pyarrow.ArrowInvalid) as raised:
        pyarrow.table(features.read_pcap(capture))
    assert f"{capture}: cut off" in str(raised.value)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"idle_timeout": "5"}, 'idle_timeout: "5" has no unit; write a duration such as 5s'),
        ({"idle_timeout": -1.0}, "idle_timeout: "),
        ({"idle_timeout": datetime.timedelta(seconds=-1)}, "idle_timeout: "),
        ({"splt": 33}, "splt: 33 is not within 0 and 32"),
        ({"max_flows": 0}, "max_flows: 0 is not within 1 and 4294967295"),
        ({"early": 0}, "early: 0 is not within 1 and "),
        ({"filter": "tcp and"}, "filter: "),
        ({"sample": "2/1"}, 'sample: "2/1" is not a rate; write 1/100, or 1/1 for all'),
        ({"sample": "1/2", "sample_flows": "1/2"}, "sample_flows: sample and "),
        ({"tiers": [("tcp and", "1/10")]}, 'tiers: "tcp and": '),
        ({"threads": 0}, "threads: 0 is not within 1 and 256"),
        ({"tunnels": "both"}, 'tunnels: "both" is neither "outer" nor "inner"'),
    ],
)
def test_values_that_make_no_sense(capture: Path, options: dict, what: str) -> None:
    with pytest.raises(lowroad.InputError) as raised:
        features.read_pcap(capture, **options)
    assert str(raised.value).startswith(what)


@pytest.mark.parametrize(
    "options",
    [
        {"idle_time": 5},
        {"splt": "3"},
        {"by_vlan": "yes"},
        {"tiers": 1},
        {"threads": "2"},
        {"without": "tls_sni"},
    ],
)
def test_options_that_are_none(capture: Path, options: dict) -> None:
    with pytest.raises(TypeError, match=next(iter(options))):
        features.read_pcap(capture, **options)


def test_rows_are_taken_once(capture: Path) -> None:
    flows = features.read_pcap(capture)
    assert flows.to_pyarrow().num_rows == 3000
    with pytest.raises(lowroad.InputError, match="its rows have been taken"):
        flows.to_pyarrow()
    assert list(flows) == []


def test_a_closed_stream_has_no_rows(capture: Path) -> None:
    with features.read_pcap(capture) as flows:
        pass
    assert list(flows) == []
    assert flows.counters() is None


def test_live_arguments(command: Command) -> None:
    names = [path.name for path in features.datapaths()]
    with pytest.raises(lowroad.InputError) as raised:
        features.live("lo", datapath="auto")
    assert str(raised.value) == command.error(
        "features", "live", "lo", "--datapath", "auto", "-o", "-"
    )
    assert all(name in str(raised.value) for name in names)
    for name, value in [
        ("direction", "up"),
        ("duration", "soon"),
        ("workers", 0),
        ("wakeup", "10us"),
        ("max_pps", 0),
    ]:
        with pytest.raises(lowroad.InputError, match=f"^{name}: "):
            features.live("lo", datapath="recv", **{name: value})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to have permissions to drop")
def test_what_a_machine_lacks_comes_with_the_remedy() -> None:
    script = """
import os
import lowroad
# While it can be read: the interpreter may be where nobody looks.
from lowroad import features
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in features.datapaths():
    assert not path.available and path.missing.startswith("needs CAP_"), path
    try:
        features.live("lo", datapath=path.name, schema="cic.v1")
    except lowroad.MissingError as error:
        assert str(error) == f"{path.name}: {path.missing}; {path.remedy}", error
    else:
        raise SystemExit("nothing was missing")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
