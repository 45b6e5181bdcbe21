"""Pictures and imports."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from depth import some
from needs import needs

from relive_lab.envs import PairsTradingEnv

ID = "relive/PairsTrading-v0"


def act(value: float) -> np.ndarray:
    return np.array([value], dtype=np.float32)


@pytest.mark.parametrize("settings", some([{}, {"data": "real", "split": "test"}], 1))
def test_rgb_array(settings: dict[str, str]) -> None:
    if settings.get("data") == "real":
        needs("skfolio")
    env = gymnasium.make(ID, render_mode="rgb_array", **settings)
    env.reset(seed=0)
    frames = [env.render()]
    env.step(act(1.0))
    frames.append(env.render())
    for frame in frames:
        assert frame.shape == (500, 800, 3)
        assert frame.dtype == np.uint8
    assert not np.array_equal(frames[0], frames[1])
    np.testing.assert_array_equal(env.render(), frames[-1])
    # Four panels of data on white: ink in every quarter, and mostly paper.
    for rows in (slice(0, 250), slice(250, 500)):
        for columns in (slice(0, 400), slice(400, 800)):
            quarter = frames[-1][rows, columns]
            assert 0.005 < (quarter < 200).any(axis=-1).mean() < 0.3
    env.close()


def test_the_picture_hides_what_is_to_come() -> None:
    """Check that two episodes that agree so far look alike, whatever happens later."""
    long, short = (PairsTradingEnv(render_mode="rgb_array") for _ in range(2))
    for env in (long, short):
        env.reset(seed=0)
        for _ in range(10):
            env.step(act(-1.0))
    for name in ("spread", "z", "move"):
        getattr(short.episode, name)[11:] = 50.0
    short.episode.regime[11:] = True
    np.testing.assert_array_equal(long.render(), short.render())


@pytest.mark.slow
def test_rgb_array_leaves_pyplot_alone() -> None:
    code = (
        "import sys, relive_lab.envs\n"
        "env = relive_lab.envs.PairsTradingEnv(render_mode='rgb_array')\n"
        "env.reset(seed=0); env.render()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_human_mode_draws_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    monkeypatch.delenv("DISPLAY", raising=False)
    before = plt.get_fignums()
    env = gymnasium.make(ID, render_mode="human")
    env.reset(seed=0)
    env.step(act(1.0))
    assert env.render() is None
    (number,) = set(plt.get_fignums()) - set(before)
    assert "bar 1 of 100" in plt.figure(number).get_suptitle()
    env.close()
    env.close()
    assert plt.get_fignums() == before
