"""Every selector is used and can be drawn from, and what is written back is saved. Needs `pip install elements`."""

import importlib
import sys
import types

import numpy as np
import pytest
from source import SOURCE

pytest.importorskip("elements")
package = types.ModuleType("core")
package.__path__ = [str(SOURCE / "embodied/core")]
sys.modules["core"] = package
selectors, replays = (importlib.import_module(f"core.{name}") for name in ("selectors", "replay"))


def filled(selector=None, **choices):
    replay = replays.Replay(2, 100, chunksize=4, selector=selector, save_wait=True, **choices)
    for step in range(12):
        replay.add({"number": np.int64(step), "latent": np.float32(0)})
    return replay


def test_recency_can_be_drawn_from():
    selector = selectors.Recency(1 / np.arange(1, 101))
    replay = filled(selector)
    assert replay.sampler is selector
    assert replay.sample(4)["number"].shape == (4, 2)


def test_a_mixture_can_be_drawn_from():
    kinds = {"uniform": selectors.Uniform(), "priority": selectors.Prioritized()}
    selector = selectors.Mixture(kinds, {"uniform": 0.5, "priority": 0.5})
    replay = filled(selector)
    assert replay.sampler is selector
    assert replay.sample(4)["number"].shape == (4, 2)


def test_latents_written_after_a_save_are_in_the_next_one(tmp_path):
    replay = filled(directory=tmp_path)
    replay.save()
    batch = replay.sample(50)
    replay.update({"stepid": batch["stepid"], "latent": np.ones((50, 2), np.float32)})
    replay.save()
    loaded = replays.Replay(2, 100, chunksize=4, directory=tmp_path)
    loaded.load()
    again = loaded.sample(50)
    written = set(batch["number"].ravel().tolist())
    assert all(latent == 1 for n, latent in zip(again["number"].ravel(), again["latent"].ravel()) if n in written)
