"""Examine any replay buffer, with the loop that fills it, in an environment of which every right answer is known."""

from ._examine import examine
from ._pipeline import Item, Pipeline
from ._report import Finding, Report

__all__ = ["Finding", "Item", "Pipeline", "Report", "examine"]
