"""Processes whose buffer saves itself are killed; what is loaded is what was added up to shortly before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autosaving import kill, moments


@pytest.mark.parametrize("sampler", ["uniform", "prioritized"])
def test_kills(sampler: str, folder: Path, record_property: Any) -> None:
    """Check that a load at any moment gives the added steps, up to an instant shortly before."""
    lost = [kill(folder, sampler, 2_000, 0.1, 0, after) for after in (0.0, *moments(0, 3, 0.5))]
    record_property("cases", len(lost))
    assert max(each.age for each in lost) < 5.0, "by far: machines stop processes"
    assert lost[-1].saves > len(lost)


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "oldest"), [("uniform", 1.3), ("prioritized", 1.6)])
def test_five_hundred_kills(sampler: str, oldest: float, folder: Path, record_property: Any) -> None:
    """Add a thousand steps a second to a million; check the age of the oldest lost step at the 99th percentile."""
    lost = [kill(folder, sampler, 1_000_000, 1.0, 1_000, after) for after in moments(1, 250, 2.5)]
    record_property("cases", len(lost))
    ages = np.array([each.age for each in lost])
    spread = np.quantile(ages, [0.5, 0.9, 0.99, 1])
    print(f"{sampler}: ages at 50, 90, 99, 100 %: {spread}, at most {max(each.steps for each in lost)} steps")
    assert np.quantile(ages, 0.99) <= oldest
