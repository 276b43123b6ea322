"""The rows of a capture are those that the command writes."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from conftest import Command, corpus

import lowroad
from lowroad import features


def both(
    command: Command, path: Path, schema: str, to: Path
) -> tuple[pyarrow.Table, pyarrow.Table, str | None]:
    """Our rows, the command's, and the fault that both name."""
    done = command.run("features", "pcap", path, "--schema", schema, "-o", to)
    assert done.returncode in (0, 2), done.stderr
    flows = features.read_pcap(path, schema=schema, partial=True)
    ours = flows.to_pyarrow()
    fault = flows.counters()["fault"]
    assert (fault is not None) == (done.returncode == 2), done.stderr
    return ours, pyarrow.parquet.read_table(to), fault


@pytest.mark.parametrize("schema", ["flow.v1", "cic.v1"])
@pytest.mark.parametrize("path", corpus(), ids=lambda path: path.name)
def test_every_capture_of_the_corpus(
    command: Command, path: Path, schema: str, tmp_path: Path
) -> None:
    ours, theirs, _ = both(command, path, schema, tmp_path / "rows.parquet")
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.equals(theirs)


@pytest.mark.parametrize("schema", list(features.schemas()))
def test_every_schema(command: Command, capture: Path, schema: str, tmp_path: Path) -> None:
    ours, theirs, fault = both(command, capture, schema, tmp_path / "rows.parquet")
    assert fault is None
    assert ours.num_rows == theirs.num_rows >= 3000
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    assert ours.equals(theirs)
    assert ours.schema.metadata[b"lowroad.schema"] == schema.encode()


def test_options_are_the_commands(command: Command, capture: Path, tmp_path: Path) -> None:
    words = "--idle-timeout 1us --active-timeout 2ms --linger 1s --active-gap 3ms --tunnels inner"
    words += " --by-vlan --splt 3 --early 1 --max-flows 700"
    to = tmp_path / "rows.parquet"
    done = command.run("features", "pcap", capture, *words.split(), "-o", to)
    assert done.returncode == 0, done.stderr
    flows = features.read_pcap(
        capture,
        idle_timeout=1e-6,
        active_timeout="2ms",
        linger=1,
        active_gap=0.003,
        tunnels="inner",
        by_vlan=True,
        splt=3,
        early=1,
        max_flows=700,
    )
    ours = flows.to_pyarrow()
    assert ours.equals(pyarrow.parquet.read_table(to))
    assert ours.num_rows > 4000


def test_filters_and_samples_are_the_commands(
    command: Command, capture: Path, tmp_path: Path
) -> None:
    to = tmp_path / "rows.parquet"
    words = ["--filter", "udp and less 300", "--sample-flows", "1/3", "--sample-seed", "5"]
    words += ["--tier", "src net 10.0.1.0/24=1/2"]
    done = command.run("features", "pcap", capture, *words, "-o", to)
    assert done.returncode == 0, done.stderr
    flows = features.read_pcap(
        capture,
        filter="udp and less 300",
        sample_flows="1/3",
        sample_seed=5,
        tiers=[("src net 10.0.1.0/24", "1/2")],
    )
    ours = flows.to_pyarrow()
    assert ours.equals(pyarrow.parquet.read_table(to))
    counters = flows.counters()
    assert counters["filtered"] == 1000
    assert 0 < ours.num_rows == 3000 - counters["sampled_out"] < 3000


def test_threads_share_a_capture_and_give_the_same_rows(
    command: Command, capture: Path, tmp_path: Path
) -> None:
    to = tmp_path / "rows.parquet"
    done = command.run("features", "pcap", capture, "--threads", "3", "-o", to)
    assert done.returncode == 0, done.stderr
    tables = [pyarrow.parquet.read_table(to)]
    for threads in [None, 1, 3]:
        flows = features.read_pcap(capture, threads=threads)
        tables.append(flows.to_pyarrow())
        assert flows.packets == flows.counters()["packets"] == 4000
    ours, *others = [table.sort_by("flow_id") for table in tables]
    assert ours.num_rows == 3000
    assert all(ours.equals(other) for other in others)


def test_columns_are_left_out(command: Command, capture: Path, tmp_path: Path) -> None:
    to = tmp_path / "rows.parquet"
    done = command.run("features", "pcap", capture, "--without", "tls_sni,packets", "-o", to)
    assert done.returncode == 0, done.stderr
    ours = features.read_pcap(capture, without=["packets", "tls_sni"]).to_pyarrow()
    assert ours.equals(pyarrow.parquet.read_table(to))
    left = set(features.read_pcap(capture).to_pyarrow().column_names) - set(ours.column_names)
    assert left == {"packets", "tls_sni"}
    expected = command.error("features", "pcap", capture, "--without", "bites", "-o", to)
    with pytest.raises(lowroad.InputError) as raised:
        features.read_pcap(capture, without=["bites"])
    assert str(raised.value) == expected


def test_the_account_is_the_commands(command: Command, capture: Path, tmp_path: Path) -> None:
    theirs = command.account("features", "pcap", capture, "-o", tmp_path / "rows.csv")
    flows = features.read_pcap(capture)
    assert flows.counters() is None
    rows = sum(len(batch) for batch in flows)
    ours = flows.counters()
    assert ours.pop("fault") is None
    # Of a capture that the command writes beside the rows.
    assert theirs.pop("pcap_out") is None
    # Of the several captures that the command takes.
    assert (theirs.pop("captures"), theirs.pop("damaged")) == (1, [])
    assert ours == theirs
    assert (rows, flows.packets) == (3000, 4000)


def test_rows_as_dictionaries_are_arrows(capture: Path) -> None:
    for schema in features.schemas():
        table = features.read_pcap(capture, schema=schema).to_pyarrow()
        times = [f.name for f in table.schema if pyarrow.types.is_timestamp(f.type)]
        for name in times:
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, table[name].cast(pyarrow.int64()))
        rows: list[dict[str, object]] = []
        features.read_pcap(capture, schema=schema).each(rows.append)
        assert rows == table.to_pylist(), schema


def test_schemas_name_units_and_definitions() -> None:
    for name, about in features.schemas().items():
        columns = features.schema(name)
        assert about and columns
        assert all(column.definition.endswith(".") for column in columns)
    with pytest.raises(lowroad.InputError, match='no schema is called "no.v1"; there are flow.v1'):
        features.schema("no.v1")
