"""Random programs: a buffer and the calls to make on it, to be run twice in two ways and compared."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from oracle_stacks import leaves, tree_map
from strategies import FORMS, Config, configs, lane_subsets, raw_priorities, scripts, spoil

from relive import _kernels
from relive.errors import ReliveError

Call = tuple[str, dict[str, Any]]


@st.composite
def programs(draw: st.DrawFn, spoiled: bool = True) -> tuple[Config, list[Call]]:
    """A buffer and the calls to make on it, arguments included."""
    config = draw(configs())
    world, model = config.world(), config.oracle()
    calls: list[Call] = []
    issued = [0]
    for _ in range(draw(st.integers(2, 14))):
        name = draw(st.sampled_from(["add", "add", "extend", "extend", "sample", "sample", "update_priorities", "cut"]))
        if name in ("add", "extend"):
            lanes = draw(lane_subsets(config.num_envs))
            steps = 1 if name == "add" else draw(st.integers(1, config.rows + 4))
            told, ids = world.live(model, lanes, steps, draw(scripts(config.sampler is not None)))
            told = tree_map(lambda value: value[:, 0], told) if name == "add" else told
            if spoiled and draw(st.integers(0, 4)) == 0:
                told = spoil(told, draw(st.sampled_from(sorted(told))), draw(st.sampled_from(sorted(FORMS))))
            if lanes != list(range(config.num_envs)) or draw(st.booleans()):
                told["env_ids"] = lanes
            calls.append((name, told))
            issued += ids.ravel().tolist()
        elif name == "cut":
            calls.append((name, {"env_ids": draw(lane_subsets(config.num_envs))}))
        elif name == "sample":
            calls.append((name, {"batch_size": draw(st.integers(1, 70))}))
        else:
            ids = draw(st.lists(st.sampled_from(issued[-60:]), min_size=1, max_size=20))
            calls.append((name, {"ids": ids, "td_error": [draw(raw_priorities) for _ in ids]}))
    return config, [*calls, ("sample", {"batch_size": 33}), ("read_all", {"ids": sorted(set(issued))})]


def run(backend: str, config: Config, calls: list[Call]) -> list[Any]:
    """What every call gave: the result, or the text of the refusal."""
    with _kernels.use(backend):
        buffer = config.build()
        results: list[Any] = []
        for name, arguments in calls:
            if name == "read_all":
                results += [attempt(buffer.read, {"ids": [key]}) for key in arguments["ids"]]
            else:
                results.append(attempt(getattr(buffer, name), arguments))
        results.append(buffer.rng.bit_generator.state["state"])
        results.append(vars_of(buffer.stats()))
        return results


def attempt(method: Any, arguments: dict[str, Any]) -> Any:
    try:
        return method(**arguments)
    except ReliveError as error:
        return f"{type(error).__name__}: {error}"


def vars_of(stats: Any) -> dict[str, Any]:
    return {name: getattr(stats, name) for name in ("size", "added", "drawn", "cuts", "stale_updates")}


def assert_same_results(ours: list[Any], theirs: list[Any]) -> None:
    """Every call gave the same, refusals included."""
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other), (one, other)
        if hasattr(one, "ids"):
            assert_same_batch(one, other)
        elif isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
        else:
            assert one == other


def assert_same_batch(ours: Any, theirs: Any) -> None:
    """Ids and copied fields to the byte, computed floats to 1e-6."""
    assert list(ours.keys()) == list(theirs.keys())
    for name in ours.keys():  # noqa: SIM118
        for a, b in zip(leaves(ours[name]), leaves(theirs[name]), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), name
            if name in ("reward", "discount", "weights"):
                np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=name)
            else:
                assert a.tobytes() == b.tobytes(), name
