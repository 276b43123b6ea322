"""Scores are the command's, of captures and of rows, by trees and by networks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from conftest import Command

import lowroad
from lowroad import features

CRATES = Path(__file__).resolve().parents[2] / "crates"
TREES = CRATES / "features/tests/it/model/saved/xgboost-3.toml"
NETWORK = CRATES / "onnx/tests/it/saved/network-3.toml"


@pytest.mark.parametrize("model", [TREES, NETWORK], ids=lambda path: path.stem)
def test_a_capture_and_its_rows(
    command: Command, capture: Path, model: Path, tmp_path: Path
) -> None:
    rows, scored = tmp_path / "rows.parquet", tmp_path / "scored.parquet"
    for words in [["pcap", capture, "-o", rows], ["score", capture, "--model", model, "-o", scored]]:
        done = command.run("features", *words)
        assert done.returncode == 0, done.stderr
    theirs = pyarrow.parquet.read_table(scored)
    of_capture = features.score(capture, model)
    ours = of_capture.to_pyarrow()
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.equals(theirs)
    assert ours.column_names[-2:] == ["class", "class_probability"]
    assert ours["class"].null_count == 0
    counters = of_capture.counters()
    assert (counters["packets"], counters["unscored"], counters["fault"]) == (4000, 0, None)
    of_rows = features.score(str(rows), model)
    assert of_rows.counters() is None
    assert of_rows.to_pyarrow().equals(theirs)
    assert of_rows.counters() == {"rows": 3000, "unscored": 0}


def test_options_are_the_commands(command: Command, capture: Path, tmp_path: Path) -> None:
    to = tmp_path / "rows.parquet"
    words = ["--filter", "less 300", "--without", "tls_sni,tls_ja4", "-o", to]
    done = command.run("features", "score", capture, "--model", TREES, *words)
    assert done.returncode == 0, done.stderr
    ours = features.score(capture, TREES, without=["tls_sni", "tls_ja4"], filter="less 300", threads=2)
    ours = ours.to_pyarrow().sort_by("flow_id")
    assert ours.equals(pyarrow.parquet.read_table(to).sort_by("flow_id"))


def test_what_does_not_fit_is_refused_as_by_the_command(
    command: Command, capture: Path, tmp_path: Path
) -> None:
    to, rows = tmp_path / "out.csv", tmp_path / "rows.parquet"
    done = command.run("features", "pcap", capture, "--schema", "cic.v1", "-o", rows)
    assert done.returncode == 0, done.stderr
    missing = tmp_path / "none.toml"
    for path, model, schema in [
        (capture, missing, None),
        (capture, capture, None),
        (capture, TREES, "cic.v1"),
        (rows, NETWORK, None),
    ]:
        more = [] if schema is None else ["--schema", schema]
        expected = command.error("features", "score", path, "--model", model, *more, "-o", to)
        with pytest.raises(lowroad.InputError) as raised:
            features.score(path, model, schema=schema)
        assert str(raised.value) == expected


def test_rows_take_no_options(capture: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(features.read_pcap(capture).to_pyarrow(), rows)
    for options in [{"schema": "flow.v1"}, {"without": ["tls_sni"]}, {"threads": 2}, {"splt": 3}]:
        with pytest.raises(lowroad.InputError, match="options are for captures"):
            features.score(rows, TREES, **options)


def test_broken_rows_are_an_input_error(capture: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.arrow"
    table = features.read_pcap(capture).to_pyarrow()
    with pyarrow.OSFile(str(rows), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as out:
        out.write_table(table, max_chunksize=500)
    rows.write_bytes(rows.read_bytes()[:-200])
    with pytest.raises(lowroad.InputError, match="rows.arrow: "):
        features.score(rows, TREES).to_pyarrow()


def test_a_missing_evaluator_is_a_missing_error(capture: Path, tmp_path: Path) -> None:
    package = Path(lowroad.__file__).parent
    shutil.copytree(package, tmp_path / "lowroad", ignore=shutil.ignore_patterns("lowroad-onnx"))
    script = """
import sys
import lowroad
try:
    lowroad.features.score(*sys.argv[1:])
except lowroad.MissingError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PATH": ""}
    command = [sys.executable, "-c", script, capture, NETWORK]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.startswith("network-3: needs lowroad-onnx, which evaluates ONNX models; "), done
