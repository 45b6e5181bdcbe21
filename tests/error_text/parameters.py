"""What each kind of parameter refuses, and the words for it; `test_parameters.py` says which parameters are of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from refused_calls import F

import relive
from relive.errors import ArgumentError, PriorityError, SchemaError, StaleId

NAN, INF, HUGE, HUGER = math.nan, math.inf, 2**63, 2**70


def by_repr(value: Any) -> str:
    return f"`{value!r}`"


def by_type(value: Any) -> str:
    return f"`{type(value).__name__}`"


def by_array(value: Any) -> str:
    """The dtype and shape of the value as an array; ragged lists make none."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(0, object)
    return f"`{array.dtype}` of shape `{array.shape}`"


def by_dtype(value: Any) -> str:
    return by_array(value).partition(" of ")[0]


class Kind(NamedTuple):
    """What is wanted, values that are refused, and what the error says of such a value.

    `at` is where, if that is not the parameter itself; `@` stands for the method.
    """

    wanted: str
    bad: tuple[Any, ...]
    got: Callable[[Any], str] = by_repr
    error: type[Exception] = ArgumentError
    remedy: str = ""
    at: str = ""

    def but(self, *taken: Any) -> Kind:
        """The same, where some of these values are taken."""
        return self._replace(bad=tuple(each for each in self.bad if repr(each) not in map(repr, taken)))

    def text(self, value: Any, parameter: str) -> str:
        wanted, at = self.wanted, self.at.replace("@", parameter.partition("(")[0]).removeprefix("$.") or parameter
        if type(value) is int and value >= HUGE and wanted.startswith(("an integer >= ", "a positive integer")):
            wanted = wanted.replace(" or None", "") + (" < 2**63 or None" if "or None" in wanted else " and < 2**63")
        remedy = self.remedy
        if wanted.startswith("an object like") and isinstance(value, type):
            remedy = f"call it: `relive.{value.__name__}()`"
        return f"Expected {wanted}, got {self.got(value)} - at `{at}`" + (remedy and f": {remedy}")


def integer(least: int) -> Kind:
    others = (1.0, NAN, "1", b"1", None, True, [1], np.float32(1), np.array([4, 4]))
    return Kind(f"an integer >= {least}", (least - 1, -(2**70), *others, HUGE, HUGER))


def number(limits: str, *outside: Any) -> Kind:
    return Kind(f"a finite number{limits}", (*outside, NAN, INF, -INF, "0.5", None, True, 1j, [0.5, 1.0], float))


def one_of(*names: str) -> Kind:
    wanted = "one of " + ", ".join(f"`{name!r}`" for name in names)
    return Kind(wanted, (f"{names[0]}s", names[0].title(), 5, None, True, np.ndarray))


EXAMPLES = {
    "Uniform": "such as `relive.Prioritized()`",
    "Transitions": "such as `relive.Transitions(n_step=3)` or `relive.Sequences(80)`",
    "Ram": "such as `relive.Mapped(path)`, which keeps the steps in a file",
}


def like(example: str) -> Kind:
    others = (relive.Ram, relive.Uniform, relive.Ram(), relive.Uniform(), relive.Transitions())
    bad = (each for each in others if repr(each).split("(")[0] != example.split("(")[0])
    remedy = next((remedy for name, remedy in EXAMPLES.items() if example.startswith(name)), "")
    return Kind(f"an object like `{example}`", (*bad, 3, True, "/tmp"), remedy=remedy)


def of_fields(wanted: str, *bad: Any, got: Callable[[Any], str] = by_repr) -> Kind:
    return Kind(wanted, bad, got, SchemaError)


COUNT, NATURAL = integer(1), integer(0)
WHOLE = Kind("an integer >= -9223372036854775808", (1.0, True, None, NAN))
FLAG = Kind("`True` or `False`", (0, 1, None, "yes", [True], np.bool_(True)))
REAL, POSITIVE, AT_LEAST_0 = number(""), number(" > 0", 0, -1), number(" >= 0", -1, -5e-324)
SHARE = number(" >= 0 and <= 1", -0.1, 1.1)
SEED = Kind("an integer >= 0", (0.5, -1, "0", True, NAN, [1]))
PATH = Kind("a path", (5, None, b"a", "", "a\0b", [1]))
LIMITER = Kind("a `RateLimiter`", (0, 8, 2.0, "x", relive.RateLimiter, {}))
ITEM, SAMPLER, STORAGE = like(repr(relive.Transitions())), like("Uniform()"), like("Ram()")
BUFFER = Kind("a buffer with `sample`", ([1], None, 5, "x", 1.5, {}), by_type)
NAME = Kind("a name of letters, digits, `.`, `_` and `-`", ("a/b", "", 5, b"a", "a b", True))
OPENED = [PATH.but("", "a\0b")._replace(at="Mapped(path)"), NAME._replace(bad=("", "a\0b"), at="Shared(name)")]
GOAL = Kind("the name of a field of `obs`", ("", 5, None, b"a", True, ["a"]))
FUNCTION = Kind("a function of achieved goals, desired goals and extras", (1.0, "f", 0, True, [np.add], {}))
CHANGE = Kind("a function `f(batch, rng)` that returns a batch, or None", (0, 1.5, "f", True, {}), by_type)

FIELD_FLAG = of_fields("True or False", 0, 1, None, "yes", [True])
FRAMES = of_fields("a positive integer or None", 0, -2, 4.0, True, NAN, "x", [1], HUGE)
SHAPE = of_fields("a shape of positive integers", (3, -1), (3, 0), (3.0,), (True,), "84", None, -3, {3})
NO_DTYPES = (object, "U8", "float31", None, "M8[s]", [("x", "f4")], "V8", 32)
DTYPE = of_fields("a boolean, integer, floating or complex dtype", *NO_DTYPES)
PAD, STACK_AXIS = of_fields("`'zero'` or `'first'`", "edge", 0, None), of_fields("0 or -1", 1, 1.5, "x", None, True)
COMPRESS = of_fields("`'zstd'` or None", 0, 1.5, "x", True, [1])
TREE = of_fields("a `Field` or a mapping of fields", 3, (84, 84), "float32", None, F, [F()])
TREE = TREE._replace(remedy="such as `relive.Field((3,))`")
FLOATS = of_fields("`'float16'`, `'float32'`, `'float64'` or None", "int32", "float31", "zstd")
SPACES = "a `Box`, `Discrete`, `MultiDiscrete`, `MultiBinary`, `Dict` or `Tuple` space"
SPACE = of_fields(SPACES, 3, None, "x", [1], 1.5, spaces.Text(3), got=by_type)
EXAMPLE = of_fields("a mapping of names to arrays", [1, 2], 5, None, "x", 1.5, got=by_type)

# Of a buffer as `prioritized` makes it: what is no array of ids, and ids of which there is no drawable item.
IDS = Kind("integers of shape `(n,)`", ([12.0], [True], ["12"], [[12, 14]], 12, None, [[1], [1, 2]]), by_array, at="@")
OF_BATCH = IDS._replace(remedy="give ids, such as `batch.ids`")
NEVER = {10**6: "never issued", -1: "never issued", 10: "never issued", 2**63 - 1: "never issued"}
GONE = {0: "overwritten", **NEVER}


def reason(ids: list[int]) -> str:
    bad = [each for each in ids if each not in (12, 14)]
    return f"`{bad[0]}`, {GONE.get(bad[0], 'overwritten')} ({len(bad)} of {len(ids)})"


STALE = Kind("ids of drawable items", (*([each] for each in GONE), [12, 14, 1, 16, 0]), reason, StaleId, at="@")
NEVER_ISSUED = STALE._replace(bad=(*([12, each] for each in NEVER), [-1, 12]))
NOT_STORED = STALE._replace(wanted="ids of stored steps", bad=([12, 0], [12, 10**6, -1], [10]))
EARLY = STALE._replace(bad=([18],), got=lambda ids: "`18`: its window is not complete yet (1 of 1)")

LANES = Kind(
    "distinct lanes from 0 to 1",
    ([0, 2], [-1, 0], [1, 1], [], [0, 2**40]),
    lambda lanes: f"`{next((each for each in lanes if each not in (0, 1)), lanes)}`",
    at="$.env_ids",
)
SAVED_LANES = LANES.but([])._replace(got=by_repr, at="$.lanes")
NO_LANES = IDS._replace(at="$.env_ids", bad=([0.0, 1.0], [True, False], "all", [[0, 1]], 0, [[0], [1, 2]], [None, 1]))

STEPS = IDS._replace(bad=([1.0, 2.0], [[1], [1, 2]]), at="")
NO_STEPS = Kind("one number of steps for each of 2 ids", ([1], [1, 2, 3]), lambda steps: str(len(steps)))
DEVICE = Kind('`to="torch"` or `to="jax"`', ("cpu", 0, True), lambda value: f"a device, `{value!r}`")
COLUMNS = ("obs.camera", "obs.joints", "action", "reward", "note", "seen", "last", "terminated", "truncated", "ids")
COLUMN = one_of(*COLUMNS)._replace(bad=("obs", "next_obs.joints", None, 5, "Action"), at="@")

# Of a tree of five leaves, as `tree` makes it; of arrays of one item.
LEAF = Kind("integers", ([0.0, 1.0], [True, False], ["0", "1"], None, [0, HUGE]), by_dtype)
NO_LEAF = Kind("an index in [0, 5)", ([0, 5], [1, -1]), lambda a: f"`{a[1]}` (1 of 2)", at="@(indices)[1]")
NUMBERS = Kind("numbers", (["a", "b"], None, [1j, 1.0], [True, True]), error=PriorityError)
LEAVES = Kind("an integer from 1 to 2**48", (0, -4, 4.0, True, "4", None, 2**48, [3]))
VALUES = [
    NUMBERS,
    Kind(
        "a finite value in [0, 3.59539e+307]",
        ([1.0, NAN], [1.0, INF], [1.0, -1e-300], [1.0, 1e308]),
        lambda values: f"`{values[1]}` (1 of 2)",
        PriorityError,
        at="@(values)[1]",
    ),
    Kind(
        "values of shape `(2,)` or one number",
        ([1.0], [1.0] * 3, [[1.0], [1.0]]),
        lambda values: f"shape `{np.shape(values)}`",
        PriorityError,
    ),
]
PREFIX = Kind("a prefix in [0, 6.5]", (-0.5, 100.0, NAN, INF))
VARIANCES = Kind("variances `[B]`", (1, 1.5, [[1.0]], "x", None, [True]), by_array, PriorityError)
TD_ERRORS = Kind("TD errors `[B, T]`", ([1.0], [["a"]], 1, None, [[1j]]), by_array, PriorityError)
MASK = Kind("`bool` of shape `(1, 1)`", ([[1]], [True], True, [[True, True]], None, [["x"]]), by_array)


def per_item(
    finite: str, array: str, ones: np.ndarray, at: str, outside: tuple[float, ...], remedy: str = ""
) -> list[Kind]:
    """Refusals of an array that has a number for each item: of values, shapes and types."""

    def ending_in(value: float) -> np.ndarray:
        return np.append(ones.flat[:-1], value).reshape(ones.shape)

    last = ", ".join(str(n - 1) for n in ones.shape)
    outside = tuple(map(ending_in, (NAN, INF, *outside)))
    shapes = (ones[:-1], np.concatenate([ones, ones[:1]]), ones[None], np.ones((4, 5)))
    types = (np.full(ones.shape, "a"), np.full(ones.shape, None), ones + 1j, ones == 1, {"td": 1.0})
    return [
        Kind(finite, outside, lambda a: f"`{a.flat[-1]}` (1 of {a.size})", PriorityError, remedy, f"{at}[{last}]"),
        Kind(array.replace("?", f"`{ones.shape}`"), shapes, lambda a: f"shape `{a.shape}`", PriorityError, at=at),
        Kind("an array of numbers", types, by_dtype, PriorityError, at=at),
    ]


TD_ERROR = per_item(
    "a finite TD error", "TD errors of shape ?, one per id", np.ones(2), "$.td_error", (-INF,), "check the loss"
)
PRIORITY, PRIORITIES = (
    per_item("a finite priority >= 0", "priorities of shape ?, one per step", np.ones(shape), "$.priority", (-0.5,))
    for shape in ((2,), (2, 3))
)
