"""Lookup from Python: what it finds, in which arrays, and what it refuses."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import numpy
import pytest
from conftest import Command

import lowroad
from lowroad.router import NO_ROUTE, NO_RULE

ROUTES = {
    "192.0.2.0/24": "10.0.0.1",
    "192.0.2.128/25": "10.0.0.2",
    "198.51.100.0/24": "10.0.0.1",
    "2001:db8::/32": "fe80::1",
    "2001:db8:7::/48": "fe80::2",
}
RULES = """@0.0.0.0/0\t192.0.2.0/24\t0 : 65535\t80 : 80\t0x06/0xFF
@10.0.0.0/8\t0.0.0.0/0\t1024 : 65535\t0 : 65535\t0x00/0x00
"""


@pytest.fixture
def router(tmp_path: Path) -> lowroad.Router:
    routes, rules = tmp_path / "routes", tmp_path / "rules"
    routes.write_text("".join(f"{prefix} {hop}\n" for prefix, hop in ROUTES.items()))
    rules.write_text(RULES)
    return lowroad.Router(routes, rules)


def longest(address: str) -> str | None:
    """The next hop, by looking at every route."""
    networks = [ip_network(prefix) for prefix in ROUTES]
    holding = [network for network in networks if ip_address(address) in network]
    best = max(holding, key=lambda network: network.prefixlen, default=None)
    return best and f"via {ROUTES[str(best)]}"


@pytest.mark.parametrize("version", [4, 6])
def test_the_longest_prefix_is_found(router: lowroad.Router, version: int) -> None:
    texts = {
        4: ["192.0.2.1", "192.0.2.200", "198.51.100.9", "203.0.113.1"],
        6: ["2001:db8::1", "2001:db8:7::1", "2001:db9::"],
    }[version]
    hops = router.lookup(texts)
    assert hops.format == "H"
    names = router.next_hops(version)
    assert [names[hop] for hop in hops] == [longest(text) for text in texts]
    rows = numpy.array([list(ip_address(text).packed) for text in texts], dtype=numpy.uint8)
    assert numpy.asarray(router.lookup(rows)).tolist() == hops.tolist()
    assert router.lookup([ip_address(text) for text in texts]) == hops


def test_numbers_are_addresses_of_ipv4(router: lowroad.Router) -> None:
    numbers = numpy.array([0xC0000201, 0xCB007101], dtype=numpy.uint32)
    assert router.lookup(numbers) == router.lookup(["192.0.2.1", "203.0.113.1"])
    # Not one after the other in memory.
    assert router.lookup(numpy.repeat(numbers, 2)[::2]) == router.lookup(numbers)


def test_the_first_rule_is_found(router: lowroad.Router) -> None:
    sources = ["10.1.1.1", "10.1.1.1", "11.1.1.1", "10.1.1.1"]
    destinations = ["192.0.2.9", "192.0.2.9", "192.0.2.9", "192.0.2.9"]
    columns = ([5000, 5000, 5000, 80], [80, 81, 80, 81], [6, 6, 17, 6])
    found = router.classify(sources, destinations, *columns)
    assert found.tolist() == [0, 1, NO_RULE, NO_RULE]
    types = (numpy.uint16, numpy.uint16, numpy.uint8)
    arrays = [numpy.array(column, dtype=kind) for column, kind in zip(columns, types)]
    assert router.classify(sources, destinations, *arrays) == found
    assert [action for action, _ in router.rules()] == ["accept", "accept"]
    assert router.rules(6) == []


def test_without_files_nothing_is_found() -> None:
    router = lowroad.Router()
    assert router.lookup(["192.0.2.1"]).tolist() == [NO_ROUTE]
    assert router.lookup([]).tolist() == []
    assert router.classify(["::1"], ["::2"], [1], [2], [6]).tolist() == [NO_RULE]
    assert router.classify([], [], [], [], []).tolist() == []


def test_a_table_image_is_as_what_it_was_made_of(
    router: lowroad.Router, tmp_path: Path, command: Command
) -> None:
    image = tmp_path / "table.lrt"
    files = ("--rib", tmp_path / "routes", "--rules", tmp_path / "rules")
    done = command.run("router", "build", *files, "--out", image)
    assert done.returncode == 0, done.stderr
    restored = lowroad.Router(image=image)
    texts = ["192.0.2.1", "192.0.2.200", "198.51.100.9", "203.0.113.1"]
    names = [one.next_hops() for one in (router, restored)]
    hops = [one.lookup(texts).tolist() for one in (router, restored)]
    assert [names[0][hop] for hop in hops[0]] == [names[1][hop] for hop in hops[1]]
    assert restored.rules() == router.rules()
    assert repr(restored) == repr(router)


def test_refusals(router: lowroad.Router, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("192.0.2.0/24\n192.0.2.0/33\n")
    with pytest.raises(lowroad.InputError, match="broken:2: "):
        lowroad.Router(broken)
    with pytest.raises(lowroad.InputError, match="no table image"):
        lowroad.Router(image=broken)
    with pytest.raises(lowroad.InputError, match="one or the other"):
        lowroad.Router(broken, image=broken)
    with pytest.raises(lowroad.InputError, match="missing"):
        lowroad.Router(rules=tmp_path / "missing")
    for addresses in ["192.0.2.1", ["192.0.2.1", "::1"], ["192.0.2"], numpy.zeros((2, 5), numpy.uint8)]:
        with pytest.raises(lowroad.InputError):
            router.lookup(addresses)
    one = ["192.0.2.1"]
    for columns in [
        (one, ["::1"], [1], [1], [6]),
        (one, one, [1, 2], [1], [6]),
        (one, one, [65536], [1], [6]),
        (one, one, [1], [1], [256]),
    ]:
        with pytest.raises(lowroad.InputError):
            router.classify(*columns)
    with pytest.raises(lowroad.InputError, match="IPv5"):
        router.next_hops(5)
