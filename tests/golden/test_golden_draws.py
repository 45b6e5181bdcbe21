"""Prioritized buffers draw today what they drew when their draws were recorded: ids exactly, weights too."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from depth import LONG, some
from recorded_draws import LIVES, SAMPLERS, build, live
from storages import MAKERS

from relive._ring import kernels

KINDS = [("numpy", "ram")]
if importlib.util.find_spec("relive._ring._native"):
    KINDS += [("native", storage) for storage in MAKERS]


@pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning")
@pytest.mark.parametrize(("back_end", "storage"), some(KINDS, 2))
@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_are_those_recorded(name: str, back_end: str, storage: str) -> None:
    """Check ids exactly, and weights to 1e-6, as computed floats of the two back ends agree.

    NumPy's first lives only; those of other storages, too, unless in the long mode.
    """
    lives = LIVES if back_end == "native" and (LONG or storage == "ram") else 4 if LONG else 1
    with np.load(Path(__file__).parent / "data" / "draws.npz", allow_pickle=False) as recorded:
        ids, weights = recorded[f"{name}/ids"], recorded[f"{name}/weights"]
    with kernels.use(back_end):
        batches = [batch for seed in range(lives) for batch in live(build(name, seed, MAKERS[storage]()), seed)]
    drawn = np.concatenate([batch.ids for batch in batches])
    assert len(drawn) == len(ids) if lives == LIVES else len(drawn) > 100
    np.testing.assert_array_equal(drawn, ids[: len(drawn)])
    weighed = np.concatenate([batch.weights for batch in batches])
    np.testing.assert_allclose(weighed, weights[: len(drawn)], rtol=1e-6)
