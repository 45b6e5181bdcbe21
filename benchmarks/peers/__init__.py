"""The replay buffers that stand side by side, one small adapter class a file."""

from __future__ import annotations

import importlib

from benchmarks.peers.base import Peer, Spec, Unsupported

# name -> (file, class)
ADAPTERS = {
    "relive": ("relive", "Relive"),
    "numpy": ("numpy_by_hand", "NumpyByHand"),
    "numpy-out": ("numpy_by_hand", "NumpyReusedOutputs"),
    "cpprb": ("cpprb", "Cpprb"),
    "tianshou": ("tianshou", "Tianshou"),
    "flashbax": ("flashbax", "Flashbax"),
    "sb3": ("sb3", "StableBaselines3"),
    "labml": ("labml", "Labml"),
}
NO_LIBRARY = ("relive", "numpy", "numpy-out")
WITHOUT_PRIORITIES = ("numpy", "numpy-out", "sb3")

__all__ = ["ADAPTERS", "NO_LIBRARY", "WITHOUT_PRIORITIES", "Peer", "Spec", "Unsupported", "adapter"]


def adapter(name: str) -> type[Peer]:
    """Return the adapter class of a peer; the library itself is imported when the class is called."""
    file, kind = ADAPTERS[name]
    cls: type[Peer] = getattr(importlib.import_module(f"benchmarks.peers.{file}"), kind)
    return cls
