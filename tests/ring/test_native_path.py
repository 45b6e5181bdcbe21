"""Whatever is legal goes straight to the native ring, and is stored as the Python code stores it.

A hidden fall-back to Python would cost 50 times as much.
"""

from __future__ import annotations

import gc
import inspect
import warnings
import weakref
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from back_ends import HAS_NATIVE
from depth import LONG, pairs, some
from input_forms import DTYPES, INTEGERS, LANES, LAYOUTS, MAPPINGS, PRIORITIES, SCALARS, legal

import relive
from relive._base.nests import zipped
from relive._buffer import drawing
from relive._ring import kernels as _kernels
from relive.errors import ReliveError

pytestmark = [
    pytest.mark.skipif(not HAS_NATIVE, reason="there is no extension"),
    pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning"),
]
# A field of every dtype; an observation as a `Tuple` space has it, with frames behind.
SCHEMA = relive.Schema(
    obs={"0": relive.Field((5, 7), "uint8", stack=4, stack_axis=-1), "1": relive.Field((3,))},
    action=relive.Field((), "int64"),
    **{dtype: relive.Field((2,), dtype) for dtype in DTYPES},
    number=relive.Field(),
)
FLAT = relive.Schema(obs=relive.Field((3,)), action=relive.Field((), "int64"))
SAMPLERS = {
    "prioritized": relive.Prioritized(),
    "new as stored": relive.Prioritized(newest="stored"),
    "over episodes": relive.Uniform(over="episodes"),
    "without replacement": relive.Uniform(replacement=False),
}
ITEMS = {"n-step": relive.Transitions(n_step=3), "sequences": relive.Sequences(4, burn_in=2)}


def build(schema: relive.Schema = SCHEMA, lanes: int = 2, steps: int = 40, **choices: Any) -> relive.ReplayBuffer:
    return relive.ReplayBuffer(schema, steps * lanes, num_envs=lanes, seed=0, **choices)


def fields_of(schema: relive.Schema) -> dict[str, Any]:
    flag = relive.Field((), "bool")
    return {**schema.tree, "next_obs": schema.tree["obs"], "terminated": flag, "truncated": flag}


def step(schema: relive.Schema, lead: tuple[int, ...], t: int, most: int = 2) -> dict[str, Any]:
    """Make small numbers, arrays of the schema's dtypes; every fifth step ends an episode."""
    rng = np.random.default_rng(t)

    def value(field: Any) -> Any:
        if isinstance(field, dict):
            return {name: value(child) for name, child in field.items()}
        return rng.integers(0, most, (*lead, *field.full_shape)).astype(field.dtype)

    made = {name: value(field) for name, field in fields_of(schema).items()}
    return {**made, "terminated": np.full(lead, t % 5 == 4), "truncated": np.full(lead, t % 7 == 6)}


def given(change: Callable[[np.ndarray, relive.Field], Any], made: dict[str, Any], schema: Any = SCHEMA) -> Any:
    return {name: zipped(change, value, fields_of(schema)[name]) for name, value in made.items()}


def stored(calls: list[tuple[str, dict[str, Any]]], **choices: Any) -> tuple[list[Any], int]:
    """Return the contents of a buffer after some calls, and how many of these needed Python."""
    buffer = build(**choices)
    ids = [getattr(buffer, name)(**arguments) for name, arguments in calls]
    held = np.unique(np.concatenate([part.ravel() for part in ids]))
    states = buffer._core.ring.locate(held)[1]
    held = held if states is None else held[states == 0]
    batch = buffer.read(held)
    arrays = [*ids, *leaves(batch)]
    if buffer.sampler.prioritizes:
        arrays.append(buffer.priorities(held))
    return [(part.dtype, part.shape, part.tobytes()) for part in arrays], buffer.stats().slow_adds


def leaves(value: Any) -> list[np.ndarray]:
    return [leaf for child in value.values() for leaf in leaves(child)] if hasattr(value, "values") else [value]


def assert_native(calls: list[tuple[str, dict[str, Any]]], **choices: Any) -> None:
    """Check for the same bits as in Python, and without it."""
    with _kernels.use("numpy"):
        wanted, parsed = stored(calls, **choices)
    with _kernels.use("native"):
        found, slow = stored(calls, **choices)
    assert parsed == len(calls)
    assert found == wanted
    assert slow == 0


def calls_with(change: Callable[[np.ndarray, relive.Field], Any], lanes: int = 2) -> list[tuple[str, dict[str, Any]]]:
    """Make steps of all lanes one by one, and several together in every arrangement of the leading axes."""
    calls = [("add", given(change, step(SCHEMA, (lanes,), t))) for t in range(7)]
    calls.append(("extend", given(change, step(SCHEMA, (lanes, 3), 7))))
    calls.append(("extend", given(change, step(SCHEMA, (3, lanes), 8)) | {"time_major": True}))
    return calls + ([("extend", given(change, step(SCHEMA, (3,), 9)))] if lanes == 1 else [])


@pytest.mark.parametrize(("name", "lanes"), pairs(LAYOUTS, [1, 2]))
def test_every_layout(name: str, lanes: int) -> None:
    if "tensor" in name:
        pytest.importorskip("torch")
    assert_native(calls_with(lambda array, field: LAYOUTS[name](array), lanes), lanes=lanes)


@pytest.mark.parametrize(("dtype", "form"), pairs(DTYPES, [*product([1, 2], ["read-only", "not contiguous"])]))
def test_every_dtype(dtype: str, form: tuple[int, str]) -> None:
    """Check with strides, too."""
    lanes, layout = form

    def change(array: np.ndarray, field: relive.Field) -> np.ndarray:
        return array.astype(dtype) if legal(dtype, field) else array

    assert_native(calls_with(lambda array, field: LAYOUTS[layout](change(array, field)), lanes), lanes=lanes)


@pytest.mark.parametrize("name", SCALARS)
def test_every_number(name: str) -> None:
    """Check for one lane, whose axis is left out."""
    if "tensor" in name:
        pytest.importorskip("torch")
    dtype = {"int": "int64", "float": "float64", "0-d": "bool", "a tensor": "bool"}.get(name, name)

    def change(array: np.ndarray, field: relive.Field) -> Any:
        return SCALARS[name](array[0]) if array.ndim == 1 and legal(dtype, field) else array[0]

    assert_native([("add", given(change, step(SCHEMA, (1,), t))) for t in range(7)], lanes=1)


@pytest.mark.parametrize("name", MAPPINGS)
def test_every_mapping(name: str) -> None:
    calls = calls_with(lambda array, field: array)
    for _, made in calls:
        made |= {part: MAPPINGS[name](made[part]) for part in ("obs", "next_obs")}
    assert_native(calls)


@pytest.mark.parametrize("name", LANES)
def test_every_kind_of_lanes(name: str) -> None:
    if "tensor" in name:
        pytest.importorskip("torch")
    lanes = LANES[name]([3, 2, 1])
    calls = [("add", step(SCHEMA, (3,), t) | {"env_ids": lanes}) for t in range(4)]
    assert_native([*calls, ("extend", step(SCHEMA, (3, 2), 4) | {"env_ids": lanes})], lanes=4)


@pytest.mark.parametrize(("name", "sampler"), pairs(PRIORITIES, ["prioritized", "new as stored"]))
def test_every_kind_of_priority(name: str, sampler: str) -> None:
    if "tensor" in name:
        pytest.importorskip("torch")
    calls = []
    for t, lead in enumerate([(2,), (2,), (2, 3), (2,)]):
        calls.append(("add", step(FLAT, (2,), 2 * t)))  # gets the largest so far, whatever comes next
        priority = PRIORITIES[name](t + 1.0 + np.arange(np.prod(lead)).reshape(lead))
        calls.append(("extend" if len(lead) > 1 else "add", step(FLAT, lead, 2 * t + 1) | {"priority": priority}))
    assert_native(calls, schema=FLAT, sampler=SAMPLERS[sampler])


@pytest.mark.parametrize("choice", [*SAMPLERS, *ITEMS])
def test_every_sampler_and_item(choice: str) -> None:
    choices: dict[str, Any] = {"sampler": SAMPLERS[choice]} if choice in SAMPLERS else {"item": ITEMS[choice]}
    calls = [("add", step(FLAT, (2,), t)) for t in range(50)] + [("extend", step(FLAT, (2, 30), 50))]
    for _, made in calls[::3]:
        del made["next_obs"]
    assert_native(calls, schema=FLAT, **choices)


def test_a_list_of_lanes_that_leaves_out_one_of_64() -> None:
    """Check the steps after an episode's end in Gymnasium's NEXT_STEP mode."""
    live = np.delete(np.arange(64), 17)
    assert_native([("add", step(FLAT, (63,), t) | {"env_ids": live}) for t in range(5)], schema=FLAT, lanes=64)


class Name(str):
    """A name that is more than a string."""


@pytest.mark.parametrize("form", [str, lambda name: "".join(list(name)), Name], ids=["interned", "made", "a subclass"])
@pytest.mark.parametrize("same_order", [True, False])
def test_every_kind_of_name(form: Callable[[str], str], same_order: bool) -> None:
    """Check any order of the arguments, and any left out."""
    calls = calls_with(lambda array, field: array)
    for t, (_, made) in enumerate(calls):
        names = list(made)
        if t % 3 == 1:
            names.remove("next_obs")
        if not same_order:
            np.random.default_rng(t).shuffle(names)
        renamed = {form(name): made[name] for name in names}
        made.clear()
        made.update(renamed)
    assert_native(calls)


def test_discrete_actions_as_columns() -> None:
    calls = [("add", step(FLAT, (2,), 0)), ("extend", step(FLAT, (2, 3), 1))]
    for _, made in calls:
        made["action"] = made["action"][..., None]
    assert_native(calls, schema=FLAT)


@pytest.mark.parametrize("frames", [2, 3, 4, 5, 8, 9, 16, 33])
def test_frames_behind_however_many(frames: int) -> None:
    obs = {dtype: relive.Field((5, 23), dtype, stack=frames, stack_axis=-1) for dtype in ("uint8", "int16", "float64")}
    schema = relive.Schema(obs=obs, action=relive.Field())
    calls = [("add", step(schema, (2,), t, most=100)) for t in range(3)]
    calls.append(("extend", step(schema, (2, 3), 7, most=100)))
    assert_native(calls, schema=schema, steps=1000)  # each stack brings a row for each of its frames


@pytest.mark.parametrize("frames", some([2, 3, 4, 5, 8, 16, 17], 3))
def test_stacks_behind_that_go_on(frames: int) -> None:
    """Check frame by frame; in every other step one number of an observation, or of the next one, changes."""
    rng = np.random.default_rng(frames)
    obs = {dtype: relive.Field((211,), dtype, stack=frames, stack_axis=-1) for dtype in ("uint8", "int16", "float32")}
    schema = relive.Schema(obs=obs, action=relive.Field())
    streams = {dtype: rng.integers(0, 100, (2, 211, 60 + frames)).astype(dtype) for dtype in obs}
    calls = []
    for t in range(58):
        seen = [{dtype: stream[..., at : at + frames].copy() for dtype, stream in streams.items()} for at in (t, t + 1)]
        if t % 2:
            seen[t // 2 % 2][rng.choice(list(obs))][rng.integers(2), rng.integers(211), rng.integers(frames)] += 1
        if t % 5 == 1:
            seen[t % 2] = {dtype: np.asfortranarray(stacks) for dtype, stacks in seen[t % 2].items()}
        made = step(schema, (2,), t) | {"obs": seen[0], "next_obs": seen[1]}
        if t % 4 == 2:
            made["next_obs"] = None
        calls.append(("add", made))
    assert_native(calls, schema=schema, steps=3000)


class Foreign:
    """Something that only Python can make an array of."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._values


@pytest.mark.parametrize("form", [Foreign, lambda values: values.astype(np.longdouble)], ids=["object", "longdouble"])
def test_a_value_that_needs_python_is_stored_and_counted(form: Callable[[np.ndarray], Any]) -> None:
    calls = [("add", step(SCHEMA, (2,), t)) for t in range(4)] + [("extend", step(SCHEMA, (3, 2), 9))]
    calls[-1][1]["time_major"] = True
    for _, made in calls[1:]:
        made["obs"] = {**made["obs"], "1": form(made["obs"]["1"])}
    with _kernels.use("numpy"):
        wanted, _ = stored(calls)
    with _kernels.use("native"):
        assert stored(calls) == (wanted, len(calls) - 1)


def test_a_buffer_is_freed_as_soon_as_it_is_gone() -> None:
    """Check that its memory does not wait for the garbage collector."""
    gc.disable()
    try:
        with _kernels.use("native"):
            buffer = build(FLAT)
        buffer.add(**step(FLAT, (2,), 0))
        marks = weakref.ref(buffer._core.ring.marks)
        del buffer
        assert marks() is None
    finally:
        gc.enable()


def test_add_looks_like_the_method_that_it_stands_for() -> None:
    """Check also that a subclass's own method is called."""

    class Counting(relive.ReplayBuffer):
        calls = 0

        def add(self, **arguments: Any) -> Any:
            self.calls += 1
            return super().add(**arguments)

    with _kernels.use("native"):
        buffer, counting = build(FLAT), Counting(FLAT, 80, num_envs=2)
    for name in ("add", "extend"):
        mine, method = getattr(buffer, name), getattr(relive.ReplayBuffer, name)
        assert type(mine).__name__ == "Call"
        assert (mine.__name__, mine.__doc__) == (name, method.__doc__)
        parameters = list(inspect.signature(method).parameters.values())
        assert list(inspect.signature(mine).parameters.values()) == parameters[1:]
    for t in range(3):
        counting.add(**step(FLAT, (2,), t))
    assert (counting.calls, counting.stats().added, counting.stats().slow_adds) == (3, 6, 0)


# Where a cast could round, wrap or overflow.
EDGES = [0.0, -0.0, 1.0, -1.0, 0.1, 1 / 3, 2.0**-14, 2.0**-24, 2.0**-25, 3 * 2.0**-25, 2.0**-149, 2.0**-150, 5e-324]
EDGES += [2049.0, 2051.0, 65503.9, 65504.0, 65519.9, 65520.0, 65536.0, 3.4028235677973366e38, 3.5e38, 1e300]
EDGES += [np.inf, -np.inf, np.nan, 16777217.0, 2.0**53 + 2]
INTEGER_EDGES = [0, 1, 2, 127, 128, 255, 256, 2049, 2051, 32767, 32768, 65519, 65520, 2**24 + 1, 2**31 - 1, 2**31]
INTEGER_EDGES += [2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -1, -128, -129, -(2**31) - 1, -(2**63)]


def outcome(buffer: relive.ReplayBuffer, value: np.ndarray) -> Any:
    made = step(buffer.schema, (), 0)
    try:
        return buffer.read(buffer.add(**{**made, "value": value}))["value"].tobytes()
    except ReliveError as error:
        return str(error)


@pytest.mark.parametrize("target", DTYPES)
def test_casts_give_the_bits_and_the_errors_of_numpy(target: str) -> None:
    schema = relive.Schema(obs=relive.Field(), action=relive.Field(), value=relive.Field((1,), target))
    several = relive.Schema(obs=relive.Field(), action=relive.Field(), value=relive.Field((300,), target))
    buffers = []
    for kernels in ("numpy", "native"):
        with _kernels.use(kernels):
            buffers.append((build(schema, lanes=1), build(several, lanes=1)))
    for source in DTYPES if LONG else DTYPES[DTYPES.index(target) % 4 :: 4]:
        edges = EDGES if "float" in source else INTEGER_EDGES
        limits = None if "float" in source or source == "bool" else np.iinfo(source)
        fitting = [edge for edge in edges if limits is None or limits.min <= edge <= limits.max]
        with np.errstate(over="ignore"):
            values = np.array(fitting).astype(source) if limits is None else np.array(fitting, source)
        found = []
        for single, many in buffers:
            ones = [outcome(single, value.reshape(1)) for value in values]
            most = [value for value, one in zip(values, ones, strict=True) if isinstance(one, bytes)] or [values[0]]
            found.append([*ones, outcome(many, np.resize(np.array(most), 300))])
        assert found[0] == found[1], source


def test_the_step_that_is_said_to_lose_a_final_observation_is_not_counted() -> None:
    with _kernels.use("native"):
        buffer = build(FLAT)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for t in range(15):
                made = step(FLAT, (2,), t)
                del made["next_obs"]
                buffer.add(**made)
    assert [warning.filename for warning in said] == [__file__]
    assert (buffer.stats().unbootstrapped, buffer.stats().slow_adds) == (4, 0)


# Ids may be of no type but integers, TD errors of any number's; a network's output has an axis more, and a gradient.
UPDATES: dict[str, tuple[Callable[[np.ndarray], Any], Callable[[np.ndarray], Any]]] = {
    **{f"ids: {form}": (make, np.asarray) for form, make in LAYOUTS.items()},
    **{f"ids: {dtype}": (lambda ids, dtype=dtype: ids.astype(dtype), np.asarray) for dtype in INTEGERS},
    **{f"TD errors: {form}": (np.asarray, make) for form, make in LAYOUTS.items()},
    **{f"TD errors: {dtype}": (np.asarray, lambda td, dtype=dtype: td.astype(dtype)) for dtype in DTYPES[1:]},
    "a column": (np.asarray, lambda td: td[:, None]),
    "a column of float32": (np.asarray, lambda td: td.astype(np.float32)[:, None]),
    "a column with a gradient": (LAYOUTS["a tensor"], lambda td: LAYOUTS["a tensor"](td)[:, None].requires_grad_() * 2),
}


class WithoutShortWay(relive.Prioritized):
    def index(self, ring: Any, memory: Any) -> Any:
        index: Any = super().index(ring, memory)
        index.try_update = None
        return index


@pytest.mark.parametrize("form", UPDATES)
def test_an_update_is_one_call(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check every form of numbers, with some items gone; the long way sets and counts the same."""
    with _kernels.use("native"):
        long = build(FLAT, lanes=1, sampler=WithoutShortWay())
        monkeypatch.setattr("relive._buffer.drawing.update_priorities", lambda *arguments: pytest.fail("the long way"))
        short = build(FLAT, lanes=1, sampler=relive.Prioritized())
        monkeypatch.undo()
    for buffer in (short, long):
        added = np.concatenate([buffer.add(**step(FLAT, (1,), t)) for t in range(60)])
    ids, td = added[[-20, -9, 0, -5, -9, -2]], np.array([0.5, 3.0, 9.0, 0.0, 2.0, 1.0])
    given = UPDATES[form][0](ids), UPDATES[form][1](td)
    kept = 6 if form == "ids: repeated" else 5
    assert short.update_priorities(*given) == kept == short.update_priorities(td_error=given[1], ids=given[0])
    for _ in range(2):
        assert relive.ReplayBuffer.update_priorities(long, *given) == kept
    found = [buffer.priorities(added[-30:]).tolist() for buffer in (short, long)]
    assert found[0] == found[1]
    assert str(drawing.share(short._core)) == str(drawing.share(long._core))  # and nothing that is gone has one
    assert short._core.tally.numbers.tolist() == long._core.tally.numbers.tolist() == [0, 12, 12 - 2 * kept]


@pytest.mark.parametrize("named", [((), ("ids",)), ((), ("td_error",)), (("ids",), ("ids",)), (("ids",), ("more",))])
def test_a_call_with_other_arguments_is_pythons(named: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
    buffer = build(FLAT, lanes=1, sampler=relive.Prioritized())
    with pytest.raises((TypeError, relive.errors.ArgumentError)):
        buffer.update_priorities(*named[0], **dict.fromkeys(named[1], 0))


def test_an_interrupt_while_td_errors_are_read_ends_the_update() -> None:
    class Interrupts:
        def __array__(self, *arguments: Any, **more: Any) -> Any:
            raise KeyboardInterrupt

    with _kernels.use("native"):
        buffer = build(FLAT, lanes=1, sampler=relive.Prioritized())
    buffer.add(**step(FLAT, (1,), 0))
    with pytest.raises(KeyboardInterrupt):
        buffer.update_priorities([0], [Interrupts()])
    assert buffer._core.tally.updates == 0
