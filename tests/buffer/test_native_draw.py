"""`sample` and `update_priorities` are native calls, which give what the same calls in Python give."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from back_ends import HAS_NATIVE
from depth import LONG, pairs

import relive
from relive._base.nests import mapped
from relive._buffer import drawing
from relive._ring import kernels
from relive.testing import GO, STAY, Script, SyntheticEnvs
from relive.testing.synthetic import TERMINATED, TRUNCATED

pytestmark = [
    pytest.mark.skipif(not HAS_NATIVE, reason="there is no extension"),
    pytest.mark.filterwarnings("ignore::relive.errors.ReliveWarning"),
]
FLAT = relive.Schema(obs=relive.Field(3), action=relive.Field((), "int64"))
NESTED = relive.Schema(
    obs={"body": {"arm": relive.Field(2), "leg": relive.Field((2, 3), "uint8")}, "goal": relive.Field((), "float64")},
    action=relive.Field(2),
    info={"cost": relive.Field()},
)
WIDE = relive.Schema(obs=relive.Field((40, 30)), action=relive.Field())  # batches in memory that is used again
STACKED = relive.Schema(
    obs={
        "small": relive.Field((5, 2), "uint8", stack=4),
        "behind": relive.Field((2, 3), stack=4, stack_axis=-1, pad="first"),
        "alike": relive.Field((), "int16", stack=4),
        "plain": relive.Field(2),
    },
    action=relive.Field((), "int64"),
)
KEPT = relive.Schema(
    **NESTED.tree, hidden={"slow": relive.Field((3, 2), every=4), "fast": relive.Field((), "int64", every=2)}
)
SAMPLERS = {
    "uniform": relive.Uniform(),
    "without replacement": relive.Uniform(replacement=False),
    "over episodes": relive.Uniform(over="episodes"),
    "prioritized": relive.Prioritized(),
    "annealed": relive.Prioritized(beta=relive.Anneal(0.4, 1.0, 50)),
    "distinct": relive.Prioritized(replacement=False, stratified=False),
}
TRANSITIONS = {
    "one step": relive.Transitions(),
    "three steps": relive.Transitions(n_step=3),
    "chunks": relive.Transitions(n_step=5, chunk=True),
}
ITEMS = {
    **TRANSITIONS,
    "sequences": relive.Sequences(7, burn_in=2, gamma=0.9, starts=2),
    "burnt in": relive.Sequences(4, burn_in=20, n_step=2, gamma=0.9, step_ids=True),
    "burnt in, time first": relive.Sequences(2, burn_in=5, time_major=True, step_ids=True),
    "three steps of sequences": relive.Sequences(12, n_step=3, gamma=0.9),
    "time first": relive.Sequences(3, n_step=2, gamma=0.9, time_major=True),
    "across": relive.Sequences(9, starts=3, across_episodes=True),
    "three steps across": relive.Sequences(7, n_step=3, gamma=0.9, across_episodes=True, step_ids=True),
    "across, time first": relive.Sequences(
        4, burn_in=6, n_step=2, across_episodes=True, time_major=True, step_ids=True
    ),
}
STATES = {
    "states": relive.Sequences(7, burn_in=4, starts=4),
    "states, time first": relive.Sequences(5, n_step=3, starts=8, time_major=True),
    "states in front": relive.Sequences(3, burn_in=8, starts=4, time_major=True),
    "states across": relive.Sequences(9, starts=8, across_episodes=True, time_major=True),
}


ROUND = 499  # steps, after which a stream's observations come round


@cache
def streams(schema: relive.Schema, lanes: int) -> dict[str, Any]:
    """Make a round of steps of every lane, with ends of both kinds."""
    flags = np.random.default_rng(0).choice([GO, TERMINATED, TRUNCATED], 97, p=[0.8, 0.1, 0.1]).tolist()
    return SyntheticEnvs(schema, lanes).rollout([*range(lanes)], ROUND, Script(flags, [STAY], give_next=True))


class Twins:
    """Two equal buffers: of one the calls are native, of the other they are the functions of `drawing`."""

    def __init__(self, schema: relive.Schema = FLAT, capacity: int = 6000, lanes: int = 2, **choices: Any) -> None:
        self.schema, self.lanes, self.at = schema, lanes, 0
        with kernels.use("native"):
            self.native, self.python = (
                relive.ReplayBuffer(schema, capacity, num_envs=lanes, seed=3, **choices) for _ in range(2)
            )

    def feed(self, steps: int) -> None:
        for buffer in (self.native, self.python):
            buffer.extend(**self.next(steps))
        self.at += steps

    def next(self, steps: int) -> dict[str, Any]:
        """Return the next steps of a stream that comes round."""
        there = (self.at + np.arange(steps)) % ROUND
        return mapped(lambda array: array[:, there], streams(self.schema, self.lanes))

    def sample(self, *args: Any, **kwargs: Any) -> relive.Batch:
        found = self.native.sample(*args, **kwargs)
        assert bits(found) == bits(drawing.sample(self.python._core, *args, **kwargs))
        return found

    def update(self, ids: Any, errors: Any) -> int:
        kept = self.native.update_priorities(ids, errors)
        assert kept == drawing.update_priorities(self.python._core, ids, errors)
        return kept

    def assert_equal(self) -> None:
        native, python = self.native, self.python
        assert repr(native.stats()) == repr(python.stats())
        assert repr(native.rng.bit_generator.state) == repr(python.rng.bit_generator.state)
        assert bits(native.sample(50)) == bits(python.sample(50))  # both native


def bits(value: Any) -> Any:
    """Return names, dtypes, shapes and bytes, in their order."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return [(name, bits(child)) for name, child in value.items()]


def frames(call: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    """List the Python functions that a call runs, in order."""
    ran: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            ran.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        call(*args, **kwargs)
    finally:
        sys.setprofile(None)
    return ran


def test_meta_frames_are_counted() -> None:
    assert [name.rpartition(":")[2] for name in frames(lambda: sorted([2, 1], key=lambda x: x))] == ["<lambda>"] * 3


def cases() -> list[Any]:
    """List schemas, samplers, items and lanes; by default each sampler with every other item and one schema."""
    found = []
    for (nth, sampler), (number, item) in product(enumerate(SAMPLERS), enumerate(ITEMS | STATES)):
        if (nth + number) % 2 and not LONG:
            continue
        schemas = {"flat": FLAT, "nested": NESTED} | ({"stacked": STACKED} if item in TRANSITIONS else {})
        schemas = {"kept": KEPT} if item in STATES else schemas  # for sequences only
        for name in schemas if LONG else [[*schemas][(nth + number) // 2 % len(schemas)]]:
            found.append(pytest.param(schemas[name], sampler, (ITEMS | STATES)[item], 2, id=f"{name}-{sampler}-{item}"))
    sequences = {name: item for name, item in (ITEMS | STATES).items() if item.time_major is not None}
    return found + [
        pytest.param(KEPT if name in STATES else FLAT, "prioritized", item, 1, id=f"one lane-{name}")
        for name, item in sequences.items()
    ]


@pytest.mark.parametrize(("schema", "sampler", "item", "lanes"), cases())
def test_batches_and_counts(schema: relive.Schema, sampler: str, item: relive.Item, lanes: int) -> None:
    twins = Twins(schema, lanes=lanes, sampler=SAMPLERS[sampler], item=item)
    for round_, n in enumerate([1, 7, 256, 1024, 300]):
        twins.feed(1500)
        if not twins.native.can_sample(n):
            continue
        batch = twins.sample(n)
        if SAMPLERS[sampler].prioritizes:
            ids, errors = batch.ids.copy(), np.linspace(-1, 1, n).astype(["float32", "float64"][round_ % 2])
            if n == 256:
                twins.feed(2900)  # most of the batch goes
            assert twins.update(ids, errors) == n or n == 256
            twins.sample(n, 0.5)
            twins.sample(batch_size=n, beta=1.0)
    twins.assert_equal()


@pytest.mark.parametrize(
    ("kind", "sampler"),
    pairs([*product([NESTED], ITEMS), *product([STACKED], TRANSITIONS)] * (1 if LONG else 2), [*SAMPLERS]),
)
def test_no_call_runs_python(kind: tuple[relive.Schema, str], sampler: str) -> None:
    schema, item = kind
    twins = Twins(schema, sampler=SAMPLERS[sampler], item=ITEMS[item])
    twins.feed(1500)
    buffer = twins.native
    step = mapped(lambda values: values[:, 0], twins.next(1))
    step |= {"next_obs": step["obs"], "terminated": np.zeros(2, bool), "truncated": np.zeros(2, bool)}
    calls: list[tuple[Callable[..., Any], Any]] = [(buffer.add, step)]
    calls += [(buffer.sample, {"batch_size": n}) for n in (32, 200)]
    if buffer.sampler.prioritizes:
        ids = buffer.sample(32).ids
        buffer.update_priorities(ids, np.ones(32))  # a first one, after which nobody has to be told that it lacks
        calls.append((buffer.sample, {"batch_size": 9, "beta": 0.5}))
        forms = (np.ones(32), np.ones(32, "float32"), np.ones((32, 1)), [1.0] * 32)
        calls += [(buffer.update_priorities, {"ids": ids, "td_error": form}) for form in forms]
    for call, arguments in calls:
        call(**arguments)
        assert frames(call, **arguments) == []
    batch = buffer.sample(32)
    assert frames(lambda: (batch.ids, batch.weights, batch.action)) == [f"{__file__}:<lambda>"]


@pytest.mark.parametrize(
    ("schema", "item", "native"),
    [
        *((KEPT, item, True) for item in STATES.values()),
        (WIDE, ITEMS["one step"], True),
        (WIDE, ITEMS["sequences"], True),
        (FLAT, relive.Sequences(4, across_episodes=True), True),
        (FLAT, relive.Windows(obs=(-1, 0), action=range(-1, 15), n_step=3), True),
        (STACKED, relive.Sequences(4), False),
        (STACKED, ITEMS["one step"], True),
    ],
)
def test_which_items_are_native(schema: relive.Schema, item: relive.Item, native: bool) -> None:
    twins = Twins(schema, 300, item=item)
    twins.feed(150)
    twins.sample(1)  # says what is due
    for n in (8, 200):  # in memory of the C library, and in blocks that are used again
        assert (frames(twins.native.sample, n) == []) == native
        twins.python.sample(n)
        twins.sample(n)
    twins.assert_equal()


def test_arguments_of_other_types() -> None:
    twins = Twins(sampler=relive.Prioritized())
    twins.feed(40)
    for size, beta in [(np.int64(5), 1), (5, np.float32(0.5)), (np.uint8(5), None)]:
        twins.sample(size, beta)
    for wrong, error in [((), relive.errors.ArgumentError), ((5, 0.5, 1), TypeError)]:
        with pytest.raises(error):
            twins.native.sample(*wrong)
    for name in ({"n": 5}, {"batch_size": 5, "size": 3}):
        with pytest.raises(TypeError):
            twins.native.sample(**name)
    twins.assert_equal()


class Counting:
    """A generator that NumPy does not know."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def random(self, n: int) -> np.ndarray:
        self.asked.append(n)
        return (np.arange(n) + 0.5) / n


def test_any_generator() -> None:
    twins = Twins(sampler=relive.Prioritized())
    twins.feed(100)
    for bits_of in (np.random.MT19937, np.random.Philox, np.random.SFC64, np.random.PCG64DXSM):
        for buffer in (twins.native, twins.python):
            buffer.rng = np.random.Generator(bits_of(5))
        twins.sample(40)
        twins.sample(41)
    first = twins.native.rng
    for buffer in (twins.native, twins.python):
        buffer.rng = Counting()
    twins.sample(6)
    assert twins.native.rng.asked == twins.python.rng.asked == [6]
    twins.native.rng, twins.python.rng = first, copy.deepcopy(first)
    twins.sample(40)
    twins.assert_equal()


def test_a_generator_that_another_thread_has() -> None:
    twins = Twins()
    twins.feed(100)
    twins.sample(3)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with twins.native.rng.bit_generator.lock:
            held.set()
            done.wait(0.2)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    twins.sample(40)  # waits
    thread.join()
    twins.assert_equal()


@pytest.mark.parametrize("item", ["one step", "across", "states"])
@pytest.mark.parametrize("lanes", [1, 3])
def test_leaves_tell_of_each_id_what_marks_tell(lanes: int, item: str) -> None:
    def told(buffer: relive.ReplayBuffer, one: int) -> Any:
        try:
            return buffer.update_priorities(np.array([one]), np.array([1.0 + one]))
        except relive.ReliveError as error:
            return str(error)

    found = []
    for kind in ("native", "numpy"):
        with kernels.use(kind):  # rows between episodes have ids that no step has
            buffer = relive.ReplayBuffer(
                FLAT,
                100 * lanes,
                num_envs=lanes,
                sampler=relive.Prioritized(eps=0.0),
                item=(ITEMS | STATES)[item],
                seed=0,
            )
        for _ in range(3):
            buffer.extend(**mapped(lambda array: array[:, :60], streams(FLAT, lanes)))
            ids = buffer.ids()
            buffer.update_priorities(ids[::5], np.zeros(len(ids[::5])))  # leaves of 0
        outcomes = [told(buffer, one) for one in range(-2, int(ids.max()) + 40)]
        found.append((outcomes, buffer.priorities(buffer.ids()).tolist()))
    assert {0, 1} <= set(found[0][0])
    assert found[0] == found[1]


@pytest.mark.parametrize("schema", [NESTED, WIDE], ids=["nested", "wide"])
def test_a_batch_belongs_to_the_caller(schema: relive.Schema) -> None:
    twins = Twins(schema, 300, sampler=relive.Prioritized())
    twins.feed(150)
    unread, read, only = twins.sample(256), twins.native.sample(256), twins.native.sample(256).reward
    twins.python.sample(256), twins.python.sample(256)
    wanted, of_read, of_only = bits(copy.deepcopy(unread)), bits(read), only.tobytes()
    copies = [pickle.loads(pickle.dumps(unread)), copy.copy(read), relive.Batch(dict(unread))]
    for array in leaves(copy.deepcopy(read)):
        array.fill(1)  # of the caller's copy
    twins.feed(150)  # overwrites everything
    for _ in range(3):
        for array in leaves(twins.sample(256)):
            array[...] = 0  # must not be in a later batch
    assert bits(unread) == wanted == bits(copies[0]) == bits(copies[2])
    assert bits(read) == of_read == bits(copies[1])
    assert only.tobytes() == of_only
    twins.assert_equal()
    last = twins.native.sample(256)
    wanted = bits(copy.deepcopy(last))
    del twins
    assert bits(last) == wanted


@pytest.mark.parametrize(("item", "n"), pairs(["sequences", "three steps of sequences", "time first"], [200, 5]))
def test_what_is_read_late_is_what_was_drawn(item: str, n: int) -> None:
    twins = Twins(WIDE, 300, sampler=relive.Prioritized(), item=ITEMS[item])
    twins.feed(150)
    batches = [twins.native.sample(n) for _ in range(3)]
    wanted = [bits(drawing.sample(twins.python._core, n)) for _ in range(3)]
    changed = twins.native.sample(n)
    expected = dict(drawing.sample(twins.python._core, n))
    for name in ("mask", "reward", "ids"):
        changed[name][...] = name != "mask"  # the caller's
    unlike = [name for name in expected if bits(changed[name]) != bits(expected[name])]
    twins.feed(150)  # overwrites everything
    for _ in range(5):
        for array in leaves(twins.sample(n)):
            if array.flags.writeable:
                array[...] = 0  # must not be in an earlier batch
    assert bits(batches[0]) == wanted[0]
    for name, array in wanted[1]:
        assert bits(getattr(batches[1], name)) == array
        assert getattr(batches[1], name) is batches[1][name]
    twins.assert_equal()
    del twins
    assert bits(batches[2]) == wanted[2]
    assert set(unlike) == {"mask", "reward", "ids"}


def leaves(value: Any) -> list[np.ndarray]:
    return [leaf for child in value.values() for leaf in leaves(child)] if hasattr(value, "values") else [value]


def test_a_batch_is_a_mapping() -> None:
    twins = Twins(NESTED)
    twins.feed(20)
    batch = twins.sample(4)
    with pytest.raises(KeyError):
        batch["goal"]
    with pytest.raises(AttributeError, match="it has obs, action"):
        _ = batch.goal
    assert "obs" in batch
    assert "goal" not in batch
    assert 3 not in batch
    assert len(batch) == len(list(batch)) == len(batch.keys())
    assert batch.obs.body.arm is batch["obs"]["body"]["arm"]
    assert all(leaf.flags.owndata or leaf.base is not None for leaf in leaves(batch))
    assert all(leaf.flags.aligned and leaf.flags.writeable and leaf.flags.c_contiguous for leaf in leaves(batch))


def test_fields_with_the_names_of_methods() -> None:
    """Check that they are reached by key; a schema has none of them."""
    batch = relive.Batch(dict.fromkeys(("keys", "torch", "map", "reward"), np.ones(4)))
    for changed in (batch, batch.torch()):
        assert changed.reward is changed["reward"]
        for name in ("keys", "torch", "map"):
            assert callable(getattr(changed, name))
            assert changed[name].shape == (4,)
