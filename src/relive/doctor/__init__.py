"""Examine any replay buffer, with the loop that fills it, in an environment of which every right answer is known."""

from ._arcs import drawings
from ._examine import examine
from ._pipeline import Item, Pipeline
from ._report import Bug, Finding, Report
from ._tensors import TensorEnvs
from ._trace import Trace, TracedItem, TracedState, trace

__all__ = [
    "Bug",
    "Finding",
    "Item",
    "Pipeline",
    "Report",
    "TensorEnvs",
    "Trace",
    "TracedItem",
    "TracedState",
    "drawings",
    "examine",
    "trace",
]
