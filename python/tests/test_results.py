"""An experiment's record has the columns of ``lowroad report --parquet``, and every trial."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest

import lowroad
from lowroad import results

HEADER = {
    "kind": "header",
    "schema": 1,
    "experiment": "made",
    "job": "features",
    "questions": [],
    "seed": 7,
    "quick": True,
    "blocks": 2,
    "baseline": "recv",
    "arms": ["recv", "xdp-flow"],
    "loads": ["100B 2kpps"],
    "metrics": [
        {"name": "cpu_ns", "unit": "ns", "better": "lower", "primary": True, "effect": "ratio"}
    ],
    "machine": {"kernel": "6.1"},
    "skipped": [],
    "command": "lowroad compare made",
    "started": "2026-01-01T00:00:00Z",
    "origin": [],
}


def trial(order: int, arm: str, values: dict[str, float], flags: list[str]) -> dict[str, object]:
    return {
        "kind": "trial",
        "arm": arm,
        "repeat": 0,
        "load": "100B 2kpps",
        "block": order // 2,
        "order": order,
        "attempt": 0,
        "seed": 2**64 - 1 - order,
        "flags": flags,
        "environment": {"queues": 2},
        "values": values,
        "counts": {"sent": 1000 + order},
        "histograms": {},
        "cpu": {"user": 0.5 * order},
        "stacks": None,
        "noise": {"steal_pct": 0.25},
        "at_s": 1.5 * order,
    }


TRIALS = [
    trial(0, "recv", {"cpu_ns": 1500.0, "loss_pct": 0.0}, []),
    trial(1, "xdp-flow", {"cpu_ns": 500.0}, ["late", "stolen"]),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [json.dumps(line) for line in [HEADER, *TRIALS]]
    (tmp_path / "record.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_every_trial_with_all_its_values(folder: Path) -> None:
    record = results.read(folder)
    assert len(record) == 2
    assert record.header["machine"] == {"kernel": "6.1"}
    table = results.read(folder / "record.jsonl").to_pyarrow()
    rows = table.to_pylist()
    for row, trial in zip(rows, TRIALS):
        for name in ["arm", "load", "block", "order", "seed", "at_s"]:
            assert row[name] == trial[name], name
        for group in ["values", "counts", "cpu", "noise"]:
            for name, value in trial[group].items():
                assert row[f"{group}.{name}"] == value, name
    assert [row["flags"] for row in rows] == ["", "late; stolen"]
    assert rows[1]["values.loss_pct"] is None
    assert json.loads(rows[0]["environment"]) == {"queues": 2}
    assert table.schema.field("seed").type == pyarrow.uint64()


def test_a_record_is_taken_as_often_as_one_likes(folder: Path) -> None:
    record = results.read(folder)
    tables = [record.to_pyarrow() for _ in range(2)]
    addresses = [
        [chunk.buffers()[-1].address for column in table.columns for chunk in column.chunks]
        for table in tables
    ]
    assert addresses[0] == addresses[1] != []
    assert record.to_polars().shape == record.to_pandas().shape == tables[0].shape


def test_what_is_no_record(tmp_path: Path) -> None:
    wrong = tmp_path / "record.jsonl"
    for text in [None, "", "{}\n", json.dumps(TRIALS[0])]:
        if text is not None:
            wrong.write_text(text)
        with pytest.raises(lowroad.InputError) as raised:
            results.read(tmp_path)
        assert str(raised.value).startswith(str(wrong)) and "\n" not in str(raised.value)
