"""The replay buffers that stand side by side, one small adapter class a file."""

from __future__ import annotations

import importlib

from benchmarks.peers.base import Peer, Spec, Unsupported

# What a file is called -> its class. The order is the order of the tables' rows.
ADAPTERS = {
    "relive": "Relive",
    "numpy": "NumpyByHand",
    "cpprb": "Cpprb",
    "tianshou": "Tianshou",
    "flashbax": "Flashbax",
    "sb3": "StableBaselines3",
    "labml": "Labml",
}
LIBRARIES = tuple(name for name in ADAPTERS if name not in ("relive", "numpy"))

__all__ = ["ADAPTERS", "LIBRARIES", "Peer", "Spec", "Unsupported", "adapter"]


def adapter(name: str) -> type[Peer]:
    """Return the adapter class of a peer; the library itself is imported when the class is called."""
    file = "numpy_by_hand" if name == "numpy" else name
    cls = getattr(importlib.import_module(f"benchmarks.peers.{file}"), ADAPTERS[name])
    if not issubclass(cls, Peer):
        raise TypeError(f"{cls} is no Peer")
    return cls
