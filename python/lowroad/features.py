"""Packets to flow features: a row for each flow, from captures and live.

Every function has the options of the command ``lowroad features``, under the same names and with the
same defaults; durations are seconds, ``timedelta`` or the command's words (``"250ms"``, ``"30m"``).
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple, Sequence

from . import _native
from ._arrow import Convertible

if TYPE_CHECKING:
    from datetime import timedelta
    from types import TracebackType
    from typing import TypedDict, Union

    from typing_extensions import Self, Unpack

    Duration = Union[int, float, str, timedelta]

    class Options(TypedDict, total=False):
        """How packets become flows; ``lowroad features pcap --help`` explains each."""

        idle_timeout: Duration
        active_timeout: Duration
        linger: Duration
        ignore_tcp_end: bool
        active_gap: Duration
        tunnels: str
        by_vlan: bool
        splt: int
        early: int | None
        payload_bytes: int
        max_flows: int
        filter: str | None
        sample: str | None
        sample_flows: str | None
        sample_seed: int
        #: Expressions and their rates, as ``[("port 22,53", "1/10")]``.
        tiers: list[tuple[str, str]]


__all__ = [
    "Batch",
    "Column",
    "Datapath",
    "Flows",
    "Live",
    "datapaths",
    "interfaces",
    "live",
    "read_pcap",
    "schema",
    "schemas",
    "score",
]


class Batch(Convertible):
    """Some rows, as one Arrow record batch."""

    def __init__(self, native: _native.Batch) -> None:
        self._native = native

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Capsules with Arrow's C schema and C array of the rows."""
        return self._native.__arrow_c_array__(requested_schema)

    def __len__(self) -> int:
        return len(self._native)

    def rows(self) -> list[dict[str, Any]]:
        """Each row as a dictionary; times are nanoseconds since 1970. Needs no other library."""
        return self._native.rows()


class _Rows(Convertible):
    _native: _native.Stream

    def __init__(self, native: _native.Stream) -> None:
        self._native = native

    def __iter__(self) -> Iterator[Batch]:
        """The rows as they come, some at a time; memory holds no more than these."""
        while (batch := self._native.pull()) is not None:
            yield Batch(batch)

    def each(self, callback: Callable[[dict[str, Any]], object]) -> None:
        """Calls back with each row as a dictionary, until there are no more."""
        for batch in self:
            for row in batch.rows():
                callback(row)

    @property
    def packets(self) -> int:
        """Packets that were read so far."""
        return self._native.packets

    def stop(self) -> None:
        """Reads no more packets. Rows of those that were read can still be taken."""
        self._native.stop()

    def close(self) -> None:
        """Ends it, and leaves the rows that were not taken."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _reraise(self) -> None:
        self._native.check()


class Flows(_Rows):
    """The rows of a capture, which is read while they are taken, once."""

    def counters(self) -> dict[str, Any] | None:
        """What became of every packet, as ``lowroad features pcap --json`` prints it.

        None until all rows have been taken. ``fault`` says where a capture breaks off, ``unscored`` for
        how many rows a model had no answer.
        """
        account = self._native.counters()
        return None if account is None else json.loads(account)


class Live(_Rows):
    """The rows of an interface, until its duration is over or it is stopped."""

    def counters(self) -> dict[str, Any]:
        """What became of every packet so far, as ``lowroad features live --json`` prints it."""
        account = self._native.counters()
        return {} if account is None else json.loads(account)


def read_pcap(
    path: str | os.PathLike[str],
    schema: str = "flow.v1",
    *,
    without: Sequence[str] = (),
    threads: int | None = None,
    partial: bool = False,
    **options: Unpack[Options],
) -> Flows:
    """Reads a capture: a row for each of its flows.

    ``without`` leaves columns of the schema out. ``threads`` share the flows; by default 1, and for files
    of 256 MiB or more one for each CPU. The rows of several come in another order.

    Classic pcap and pcapng, packed by gzip or not. Reading goes on while rows are taken, a few batches
    ahead and no further, so memory holds the open flows (``max_flows``) whatever the capture's length.

    A capture that breaks off raises ``InputError`` after the rows of what came before; with ``partial``
    it ends there, and ``counters()["fault"]`` says where.

    >>> flows = read_pcap("capture.pcap", schema="cic.v1", idle_timeout=60)  # doctest: +SKIP
    >>> table = flows.to_pyarrow()  # doctest: +SKIP
    """
    return Flows(_native.read_pcap(path, schema, without, threads, partial, options))


def score(
    path: str | os.PathLike[str],
    model: str | os.PathLike[str],
    *,
    schema: str | None = None,
    without: Sequence[str] = (),
    threads: int | None = None,
    partial: bool = False,
    **options: Unpack[Options],
) -> Flows:
    """Reads a capture, or rows in a .parquet or .arrow file, with what a model says of each row.

    ``model`` is a manifest of trees or of ONNX, or what ``lowroad features model compile`` wrote. Two
    columns are added: ``class`` and ``class_probability``, both null where the model has no answer.

    A capture is read as by ``read_pcap``, with the columns of the model's schema unless ``schema`` names
    another that has them. Rows that were written before are taken as they are, without options; their
    ``counters()`` are ``rows`` and ``unscored``.

    >>> flows = score("capture.pcap", "model.toml")  # doctest: +SKIP
    >>> flows.to_polars().group_by("class").len()  # doctest: +SKIP
    """
    how = (schema, without, threads, partial)
    return Flows(_native.score(path, model, *how, options))


def live(
    interface: str,
    *,
    datapath: str,
    schema: str = "flow.v1",
    without: Sequence[str] = (),
    duration: Duration | None = None,
    direction: str = "in",
    promiscuous: bool = False,
    tap: bool = False,
    workers: int | None = None,
    wakeup: Duration = "adaptive",
    max_pps: int | None = None,
    **options: Unpack[Options],
) -> Live:
    """Captures from an interface: rows of flows as they end.

    ``datapath`` says where packets are handled; ``datapaths()`` lists what can run here. ``without``
    leaves columns out, such as one that a datapath cannot give. Rows that are not taken in time are lost
    and counted: a device does not wait.

    >>> with live("eth0", datapath="xdp-flow", schema="cic.v1", duration=60) as rows:  # doctest: +SKIP
    ...     for batch in rows:
    ...         print(batch.to_polars())
    ...     print(rows.counters())
    """
    how = {
        "duration": duration,
        "direction": direction,
        "promiscuous": promiscuous,
        "tap": tap,
        "workers": workers,
        "wakeup": wakeup,
        "max_pps": max_pps,
    }
    return Live(_native.live(interface, datapath, schema, without, how, options))


class Column(NamedTuple):
    """A schema's column."""

    name: str
    type: str
    unit: str
    definition: str
    needs_payload: bool


class Datapath(NamedTuple):
    """A way in which packets can be handled, and what this machine lacks for it."""

    name: str
    available: bool
    missing: str | None
    remedy: str | None


def schemas() -> dict[str, str]:
    """What each schema is for, by its name."""
    return dict(_native.schemas())


def schema(name: str) -> list[Column]:
    """The columns of a schema, with units and definitions."""
    return [Column(*column) for column in _native.schema(name)]


def datapaths() -> list[Datapath]:
    """Every live datapath: whether it can run here with these permissions, or what is missing."""
    return [
        Datapath(name, missing is None, *(missing or (None, None)))
        for name, missing in _native.datapaths()
    ]


def interfaces() -> list[dict[str, Any]]:
    """The network interfaces: name, kind, state, MTU and receive queues."""
    return _native.interfaces()
