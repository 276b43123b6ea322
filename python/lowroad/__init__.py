"""Packets to flow features for machine learning, and the results of lowroad's experiments.

>>> import lowroad
>>> flows = lowroad.features.read_pcap("capture.pcap", schema="cic.v1")  # doctest: +SKIP
>>> frame = flows.to_pandas()  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import errors
from .errors import Error, InputError, MissingError

if TYPE_CHECKING:
    from . import features, results, router, trees
    from .router import Router

__all__ = [
    "Error",
    "InputError",
    "MissingError",
    "Router",
    "errors",
    "features",
    "results",
    "router",
    "trees",
]


def __getattr__(name: str) -> Any:
    # Where it is first asked for: `lowroad.trees` needs nothing of the native library.
    if name == "Router":
        return importlib.import_module(f"{__name__}.router").Router
    if name in ("features", "results", "router", "trees"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
