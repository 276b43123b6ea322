"""Longest-prefix match and five-tuple classification, read only.

>>> router = lowroad.Router("routes.txt", "rules.nft.json")  # doctest: +SKIP
>>> router.lookup(["192.0.2.1", "198.51.100.7"]).tolist()  # doctest: +SKIP
[1, 0]
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Union

from . import _native
from .errors import InputError

__all__ = ["NO_ROUTE", "NO_RULE", "Router"]

NO_ROUTE = 0
"""The next hop of an address without a route."""
NO_RULE = 0xFFFF_FFFF
"""The rule of a packet that none matches."""

Address = Union[str, IPv4Address, IPv6Address]
Addresses = Union[Iterable[Address], Any]
"""Addresses of one family: text, objects of ``ipaddress``, or an array. An array has unsigned 32-bit
numbers, which are IPv4 addresses in the machine's order, or bytes in rows of 4 or 16 in network order."""


class Router:
    """Routes and rules that do not change. Threads may look up in one at a time.

    Answers are a ``memoryview`` of numbers, which ``numpy.asarray`` and ``pyarrow.py_buffer`` take as it is.
    """

    def __init__(
        self,
        routes: str | os.PathLike[str] | None = None,
        rules: str | os.PathLike[str] | None = None,
        *,
        image: str | os.PathLike[str] | None = None,
    ) -> None:
        """Reads files, each of any format that ``lowroad`` knows by its content; or both from a table image
        that ``lowroad router build`` made. Without one of them its lookups find nothing."""
        if image is None:
            self._native = _native.Router(routes, rules)
        elif routes is None and rules is None:
            self._native = _native.Router.open_image(image)
        else:
            raise InputError("a table image takes the place of routes and rules: name one or the other")

    def lookup(self, addresses: Addresses) -> memoryview:
        """The number of each address's next hop, ``NO_ROUTE`` for none, as unsigned 16-bit numbers."""
        v6, column = _addresses(addresses)
        return memoryview(self._native.lookup(v6, column)).cast("H")

    def next_hops(self, version: int = 4) -> list[str | None]:
        """What the numbers of next hops stand for, at their places; the first is no route."""
        return [None, *self._native.next_hops(_is_6(version))]

    def classify(
        self,
        sources: Addresses,
        destinations: Addresses,
        source_ports: Iterable[int] | Any,
        destination_ports: Iterable[int] | Any,
        protocols: Iterable[int] | Any,
    ) -> memoryview:
        """The number of each packet's first matching rule, ``NO_RULE`` for none, as unsigned 32-bit numbers.

        Ports are 0 for protocols that have none. A packet whose ports cannot be seen cannot be asked for:
        later fragments, and IPv6 packets with extension headers between.
        """
        (v6, source), (also_v6, destination) = _addresses(sources), _addresses(destinations)
        ports = [_numbers("H", column) for column in (source_ports, destination_ports)]
        columns = (source, destination, *ports, _numbers("B", protocols))
        width = 16 if v6 else 4
        widths = (width, 16 if also_v6 else 4, 2, 2, 1)
        rows = {len(column) // width for column, width in zip(columns, widths)}
        if v6 != also_v6 and rows != {0}:
            raise InputError("sources are of one family and destinations of the other")
        if len(rows) != 1:
            raise InputError(f"columns of different lengths: {sorted(rows)}")
        return memoryview(self._native.classify(v6, columns)).cast("I")

    def rules(self, version: int = 4) -> list[tuple[str, str]]:
        """Of each rule, by its number: ``"accept"``, ``"drop"`` or ``"punt"``, and what it was made from."""
        return self._native.rules(_is_6(version))

    def __repr__(self) -> str:
        v4, v6 = self._native.routes()
        return f"<lowroad.Router of {v4} IPv4 and {v6} IPv6 routes>"


def _is_6(version: int) -> bool:
    if version not in (4, 6):
        raise InputError(f"there is no IPv{version}")
    return version == 6


def _addresses(addresses: Addresses) -> tuple[bool, bytes]:
    """Whether they are of IPv6, and their bytes."""
    view = _view(addresses)
    if view is None:
        return _packed(addresses)
    if view.itemsize == 4 and view.format in ("I", "L") and view.ndim == 1:
        numbers = array("I", view.tobytes())
        if sys.byteorder == "little":
            numbers.byteswap()
        return False, numbers.tobytes()
    if view.format == "B" and view.ndim == 2 and view.shape[1] in (4, 16):
        return view.shape[1] == 16, view.tobytes()
    what = f"{view.format!r} of shape {view.shape}"
    raise InputError(f"addresses are uint32, or uint8 of shape (n, 4) or (n, 16), not {what}")


def _packed(addresses: Iterable[Address]) -> tuple[bool, bytes]:
    if isinstance(addresses, str):
        raise InputError("addresses are a list, not one text")
    try:
        parsed = [ip_address(address) for address in addresses]
    except ValueError as error:
        raise InputError(str(error)) from None
    versions = {address.version for address in parsed}
    if len(versions) > 1:
        raise InputError("addresses of both families: look them up apart")
    return versions == {6}, b"".join(address.packed for address in parsed)


def _numbers(kind: str, column: Iterable[int] | Any) -> bytes:
    """Unsigned numbers of the width, in the machine's order."""
    view = _view(column)
    if view is not None and view.format == kind and view.ndim == 1:
        return view.tobytes()
    try:
        return array(kind, [int(number) for number in column]).tobytes()
    except (OverflowError, TypeError, ValueError) as error:
        raise InputError(str(error)) from None


def _view(column: Any) -> memoryview | None:
    try:
        return memoryview(column)
    except TypeError:
        return None
