"""Rows are taken without a copy: whoever takes them has the same buffers."""

from __future__ import annotations

from pathlib import Path

import pandas
import polars
import pyarrow

from lowroad import features

#: Of each kind of column one; text is kept otherwise by polars.
NUMBERS = ["flow_id", "duration_ns", "fwd_packets", "frame_mean"]


def addresses(column: pyarrow.ChunkedArray | pyarrow.Array) -> list[int]:
    chunks = column.chunks if isinstance(column, pyarrow.ChunkedArray) else [column]
    return [buffer.address for chunk in chunks for buffer in chunk.buffers() if buffer]


def batches(capture: Path) -> list[features.Batch]:
    return list(features.read_pcap(capture))


def test_pyarrow_shares_every_buffer(capture: Path) -> None:
    for batch in batches(capture):
        first, second = pyarrow.record_batch(batch), pyarrow.record_batch(batch)
        assert first.equals(second) and first.num_rows == len(batch)
        for one, other in zip(first.columns, second.columns):
            assert addresses(one) == addresses(other) != []


def test_polars_shares_numbers(capture: Path) -> None:
    for batch in batches(capture):
        arrow, frame = pyarrow.record_batch(batch), polars.DataFrame(batch)
        assert frame.to_arrow().num_rows == len(batch)
        for name in NUMBERS:
            array = frame[name].to_numpy(allow_copy=False)
            assert array.__array_interface__["data"][0] == addresses(arrow[name])[-1], name


def test_pandas_and_numpy_share_numbers(capture: Path) -> None:
    batch = batches(capture)[0]
    arrow = pyarrow.record_batch(batch)
    frame = batch.to_pandas()
    assert frame["flow_id"].dtype == pandas.ArrowDtype(pyarrow.uint64())
    for name in NUMBERS:
        assert addresses(frame[name].array._pa_array) == addresses(arrow[name]), name
    array = arrow["flow_id"].to_numpy(zero_copy_only=True)
    assert array.__array_interface__["data"][0] == addresses(arrow["flow_id"])[-1]


def test_every_library_has_the_same_rows(capture: Path) -> None:
    table = features.read_pcap(capture, schema="cic.v1").to_pyarrow()
    assert table.num_rows == 3000
    frame = features.read_pcap(capture, schema="cic.v1").to_polars()
    assert frame.equals(polars.DataFrame(table))
    frame = features.read_pcap(capture, schema="cic.v1").to_pandas()
    pandas.testing.assert_frame_equal(frame, table.to_pandas(types_mapper=pandas.ArrowDtype))
    frame = features.read_pcap(capture, schema="cic.v1").to_pandas(arrow=False)
    pandas.testing.assert_frame_equal(frame, table.to_pandas())


def test_rows_outlive_what_they_came_from(capture: Path) -> None:
    flows = features.read_pcap(capture)
    batch = next(iter(flows))
    first = batch.to_pyarrow()
    rows = len(batch)
    flows.close()
    del flows, batch
    assert first.num_rows == len(first["flow_id"].unique()) == rows > 1000
