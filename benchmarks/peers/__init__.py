"""The replay buffers that stand side by side, one small adapter class each.

A library's adapter for plain transitions has a file of its own; what it does with sequences, frames and trajectories
stands in `sequences.py`, `frames.py`, `trajectories.py`, `shared.py` and `device.py`.
"""

from __future__ import annotations

import importlib

from benchmarks.peers.base import Peer, Spec, Unsupported

# name -> kind of items -> (file, class)
ADAPTERS = {
    "relive": {
        "transitions": ("relive", "Relive"),
        "sequences": ("sequences", "ReliveSequences"),
        "frames": ("frames", "ReliveFrames"),
        "trajectories": ("trajectories", "ReliveTrajectories"),
        "shared": ("shared", "ReliveShared"),
        "saves": ("saves", "ReliveSaves"),
        "device": ("device", "ReliveOnDevice"),
    },
    "numpy": {
        "transitions": ("numpy_by_hand", "NumpyByHand"),
        "sequences": ("sequences", "NumpySequences"),
    },
    "limit": {
        "frames": ("frames", "CopyLimit"),
        "saves": ("saves", "CopyOfBytes"),
        "device": ("device", "CopyOnDevice"),
    },
    "tensors": {"device": ("device", "TensorsByHand")},
    "cpprb": {
        "transitions": ("cpprb", "Cpprb"),
        "sequences": ("sequences", "CpprbSequences"),
        "frames": ("frames", "CpprbFrames"),
        "shared": ("shared", "CpprbShared"),
        "saves": ("saves", "CpprbSaves"),
    },
    "tianshou": {
        "transitions": ("tianshou", "Tianshou"),
        "frames": ("frames", "TianshouFrames"),
        "saves": ("saves", "TianshouSaves"),
    },
    "flashbax": {"transitions": ("flashbax", "Flashbax"), "sequences": ("sequences", "FlashbaxSequences")},
    "rlox": {"transitions": ("rlox", "Rlox")},
    "torchrl": {"sequences": ("torchrl", "TorchrlSlices")},
    "torchrl-plain": {
        "sequences": ("torchrl", "TorchrlPlainSlices"),
        "saves": ("saves", "TorchrlSaves"),
        "device": ("device", "TorchrlOnDevice"),
    },
    "torchrl-shared": {"shared": ("shared", "TorchrlShared")},
    "reverb": {"shared": ("reverb", "ReverbShared")},
    "sb3": {
        "transitions": ("sb3", "StableBaselines3"),
        "frames": ("frames", "StableBaselines3Frames"),
        "saves": ("saves", "StableBaselines3Saves"),
    },
    "rlinf": {"trajectories": ("trajectories", "RlinfTrajectories")},
    "torchsave": {"trajectories": ("trajectories", "TorchSave")},
}
NO_LIBRARY = ("relive", "numpy", "limit", "tensors", "torchsave")
WITHOUT_PRIORITIES = ("numpy", "limit", "sb3", "torchrl-shared")

__all__ = ["ADAPTERS", "NO_LIBRARY", "WITHOUT_PRIORITIES", "Peer", "Spec", "Unsupported", "adapter"]


def adapter(name: str, kind: str = "transitions") -> type[Peer]:
    """Return the adapter class of a peer; the library itself is imported when the class is called."""
    file, class_ = ADAPTERS[name][kind]
    cls: type[Peer] = getattr(importlib.import_module(f"benchmarks.peers.{file}"), class_)
    return cls
