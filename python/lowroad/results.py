"""The results of ``lowroad compare``: every trial of an experiment, with all that was measured."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from . import _native
from ._arrow import Convertible

__all__ = ["Record", "read"]


class Record(Convertible):
    """An experiment's trials, flagged ones too: a row each, in the order in which they ran.

    The columns are those of ``lowroad report --parquet``: ``arm``, ``load``, ``block``, ``flags``,
    ``values.METRIC``, ``counts.NAME``, ``cpu.STATE``, ``noise.NAME``; histograms, environment and stacks
    are JSON. A cell is null where a trial has no such value.
    """

    _native: _native.Table

    def __init__(self, native: _native.Table) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    @property
    def header(self) -> dict[str, Any]:
        """What was planned, on which machine: the record's first line."""
        return json.loads(self._native.header)


def read(path: str | os.PathLike[str]) -> Record:
    """Reads a ``record.jsonl``, or that of the folder that ``lowroad compare --out`` wrote.

    >>> record = read("out/features-cpu")  # doctest: +SKIP
    >>> frame = record.to_pandas()  # doctest: +SKIP
    >>> frame[frame.flags == ""].groupby("arm")["values.cpu_ns_per_packet"].median()  # doctest: +SKIP
    """
    path = Path(path)
    return Record(_native.read_record(path / "record.jsonl" if path.is_dir() else path))
