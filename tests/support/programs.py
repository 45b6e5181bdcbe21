"""Random programs: a buffer and the calls to make on it, to be run twice in two ways and compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
from configs import Config, configs
from hypothesis import strategies as st
from wild_envs import CUTS

from relive._base.nests import mapped
from relive._ring import kernels
from relive.errors import ReliveError
from relive.testing.agreement import assert_same_batch
from relive.testing.strategies import lane_subsets, raw_priorities, scripts

Call = tuple[str, dict[str, Any]]
COMPRESSES = find_spec("zstandard") is not None  # without it fields are as they are
NAMES = ["add", "add", "extend", "extend", "sample", "sample", "update_priorities", "cut", "follow"]

# Other ways to hand over an array: some mean the same, some must be refused, and both back ends must agree on which.
FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "float64": lambda a: a.astype(np.float64),
    "float32": lambda a: a.astype(np.float32),
    "int64": lambda a: np.nan_to_num(a).astype(np.int64),
    "uint8": lambda a: np.nan_to_num(a).astype(np.uint8),
    "bool": lambda a: a.astype(bool),
    "complex": lambda a: a.astype(complex),
    "object": lambda a: a.astype(object),
    "text": lambda a: a.astype("U8"),
    "other byte order": lambda a: a.astype(a.dtype.newbyteorder()),
    "Fortran order": np.asfortranarray,
    "not contiguous": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards": lambda a: np.flip(np.flip(a, 0).copy(), 0),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "one axis more": lambda a: a[None],
    "no lane axis": lambda a: a[0],
    "a lane more": lambda a: np.concatenate([a, a[:1]]),
    "transposed": lambda a: a.T,
    "huge": lambda a: np.full(a.shape, 1e300),
    "infinite": lambda a: np.full(a.shape, np.inf),
    "large integer": lambda a: np.full(a.shape, 2**40),
    "negative": lambda a: np.full(a.shape, -1),
    "unsigned": lambda a: np.full(a.shape, 2**64 - 1, np.uint64),
    "two": lambda a: np.full(a.shape, 2, np.int8),
    "number": lambda a: 1,
    "float": lambda a: 0.5,
    "word": lambda a: "word",
    "mapping": lambda a: {"a": a},
    "ragged": lambda a: [[1], [1, 2]],
    "nothing": lambda a: None,
    "empty": lambda a: a[:0],
}


def spoil(arguments: dict[str, Any], name: str, form: str) -> dict[str, Any]:
    """Return the same call with one field (the first leaf of a nested one) in another form."""

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            first = next(iter(value))
            return {**value, first: change(value[first])}
        return FORMS[form](value)

    return {**arguments, name: change(arguments[name])}


@st.composite
def programs(draw: st.DrawFn, spoiled: bool = True) -> tuple[Config, list[Call]]:
    """Draw a buffer and the calls to make on it, arguments included."""
    config = replace(draw(configs()), compressed=draw(st.booleans()) and COMPRESSES)
    envs, model = config.envs(), config.oracle()
    calls: list[Call] = []
    issued = [0]
    for _ in range(draw(st.integers(2, 14))):
        name = draw(st.sampled_from([*2 * NAMES, "clear"]))
        if name in ("add", "extend"):
            lanes = draw(lane_subsets(config.num_envs))
            steps = 1 if name == "add" else draw(st.integers(1, config.rows + 4))
            arguments = envs.rollout(lanes, steps, draw(scripts(config.sampler is not None, CUTS)))
            ids = model.extend(lanes, arguments)
            arguments = mapped(lambda value: value[:, 0], arguments) if name == "add" else arguments
            if spoiled and draw(st.integers(0, 4)) == 0:
                arguments = spoil(
                    arguments, draw(st.sampled_from(sorted(arguments))), draw(st.sampled_from(sorted(FORMS)))
                )
            if lanes != list(range(config.num_envs)) or draw(st.booleans()):
                arguments["env_ids"] = lanes
            calls.append((name, arguments))
            issued += ids.ravel().tolist()
        elif name == "cut":
            calls.append((name, {"env_ids": draw(lane_subsets(config.num_envs))}))
        elif name == "clear":
            calls.append((name, {}))
        elif name == "follow":
            ids = draw(st.lists(st.sampled_from(issued[-9:]), max_size=9))
            calls.append((name, {"ids": ids, "steps": draw(st.integers(-5, 2 * config.rows))}))
        elif name == "sample":
            calls.append((name, {"batch_size": draw(st.integers(1, 70))}))
        else:
            ids = draw(st.lists(st.sampled_from(issued[-60:]), min_size=1, max_size=20))
            calls.append((name, {"ids": ids, "td_error": [draw(raw_priorities()) for _ in ids]}))
    return config, [*calls, ("sample", {"batch_size": 33}), ("read_all", {"ids": sorted(set(issued))})]


def run(backend: str, config: Config, calls: list[Call]) -> list[Any]:
    """Return every call's result, or the text of its refusal."""
    with kernels.use(backend):
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
    return {name: getattr(stats, name) for name in ("size", "added", "drawn", "cuts", "updates", "stale_updates")}


def assert_same_results(ours: list[Any], theirs: list[Any]) -> None:
    """Check that every call has the same result, refusals included."""
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is type(other), (one, other)
        if isinstance(one, tuple):
            np.testing.assert_array_equal(one, other)
        elif hasattr(one, "ids"):
            assert_same_batch(one, other, rtol=1e-6)
        elif isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other)
        else:
            assert one == other
