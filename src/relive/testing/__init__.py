"""For the tests of those who write a sampler, an item or a storage: contract suites, an oracle, synthetic experience.

A contract suite is a class whose tests pytest collects from a subclass:

>>> from relive import Prioritized
>>> from relive.testing import SamplerContract
>>> class TestPrioritized(SamplerContract):
...     sampler = Prioritized(alpha=0.7)

`OracleBuffer` is a slow model of the replay buffer; `SyntheticEnvs` feed both with the same random experience, and
`assert_same_buffer` compares them. `relive.testing.strategies` has Hypothesis strategies for such experience and needs
Hypothesis; the rest needs NumPy only.
"""

from __future__ import annotations

import importlib
from typing import Any

from ._item_contract import ItemContract
from ._sampler_contract import SamplerContract
from ._storage_contract import StorageContract
from .agreement import assert_items, assert_same_buffer
from .item_models import ItemModel, SequencesModel, TransitionsModel, WindowsModel
from .oracle import OracleBuffer
from .streams import Anchor, Episode, Step
from .synthetic import BOTH, GO, JUMP, SCHEMAS, STAY, TERMINATED, TRUNCATED, Script, SyntheticEnvs

__all__ = [
    "BOTH",
    "GO",
    "JUMP",
    "SCHEMAS",
    "STAY",
    "TERMINATED",
    "TRUNCATED",
    "Anchor",
    "Episode",
    "ItemContract",
    "ItemModel",
    "OracleBuffer",
    "SamplerContract",
    "Script",
    "SequencesModel",
    "Step",
    "StorageContract",
    "SyntheticEnvs",
    "TransitionsModel",
    "WindowsModel",
    "assert_items",
    "assert_same_buffer",
    "strategies",
]


def __getattr__(name: str) -> Any:
    """Load the strategies, and Hypothesis with them, only when they are named."""
    if name == "strategies":
        return importlib.import_module("relive.testing.strategies")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
