"""A sampler and an item of a user's own, as `examples/` has them: all of relive works with them as with its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import own_item
import own_sampler
import pytest
from children import run_program
from local import local_shards
from own_item import Chunks
from own_sampler import Balanced, TestBalanced
from whole_rows import make, steps

import relive
from relive._ring import kernels
from relive.checkpoints.salvage import salvage
from relive.cli import main
from relive.items import Item
from relive.samplers import Draw, Index, Sampler
from relive.testing import SamplerContract, TransitionsModel
from relive.testing.agreement import assert_same_batch, is_refused

__all__ = ["TestBalanced"]  # collected by pytest
LANES, ROWS, K = 4, 60, 3
EXAMPLES = Path(own_item.__file__).parent
STEP = {"obs": 0.0, "action": 0.0, "reward": 1.0, "next_obs": 1.0, "terminated": False, "truncated": False}


class TestChunks(own_item.TestChunks):
    """The example's own, and a model."""

    model = TransitionsModel(3, 0.99, chunk=True)


class Bare:
    """A sampler that inherits from nothing and has no more than it must: errors above `cap` count as `cap`."""

    replacement = prioritizes = True
    lacks: str | None = None

    def __init__(self, cap: float = 2.0) -> None:
        self.cap, self.own = cap, relive.Prioritized(alpha=1.0, eps=0.0)

    def __repr__(self) -> str:
        return f"Bare({self.cap})"

    def spec(self, lanes: int, rows: int) -> dict[str, Any]:
        return self.own.spec(lanes, rows)

    def index(self, ring: Any, memory: Any) -> Any:
        return BareIndex(self, self.own.index(ring, memory))


class BareIndex:
    def __init__(self, sampler: Bare, own: Any) -> None:
        self._own, self._cap = own, sampler.cap
        for name in {"priorities", "share", "draw_at", "raise_priority"} - {sampler.lacks}:
            setattr(self, name, getattr(own, name))

    def refresh(self) -> int:
        return self._own.refresh()

    def draw(self, n: int, rng: Any, beta: float | None) -> Draw:
        return self._own.draw(n, rng, beta)

    def report(self) -> Any:
        return self._own.report()

    def update(self, slots: Any, td_error: Any, keep: Any) -> None:
        self._own.update(slots, np.where(np.abs(td_error) > self._cap, self._cap, td_error), keep)


class TestBare(SamplerContract):
    sampler = Bare(cap=100.0)


def filled(**choices: Any) -> relive.ReplayBuffer:
    schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    choices = {"sampler": Balanced(k=5), "item": Chunks(k=K), "seed": 0, **choices}
    buffer = relive.ReplayBuffer(schema, LANES * ROWS, num_envs=LANES, **choices)
    buffer.extend(**rollout())
    return buffer


def rollout(count: int = 50) -> dict[str, Any]:
    time = np.arange(count) + 1000.0 * np.arange(LANES)[:, None]
    ends = np.broadcast_to(np.arange(count) % 9 == 8, time.shape)
    off = np.zeros_like(ends)
    return {"obs": time, "action": time, "reward": time, "next_obs": time + 1, "terminated": ends, "truncated": off}


def elsewhere(code: str, *arguments: Any, register: bool = True) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, in which the classes are registered, or not."""
    before = "import sys, relive\n" + "import own_item, own_sampler\n" * register
    return run_program(before + code, *arguments, path=[EXAMPLES])


def names_in(refused: str, what: str, name: str, at: str) -> bool:
    """Return True if an error names the remedy for a name under which nothing is registered."""
    return all(text in refused for text in (f"Expected `{what}=`", f"`{name}`", at, f'`relive.saved_as("{name}")`'))


@pytest.mark.filterwarnings("ignore:Expected room for:relive.errors.ReliveWarning")
def test_balanced_draws_the_newest_steps_of_every_lane() -> None:
    buffer = make(1, 30, 2, sampler=Balanced(k=4), item=relive.Transitions(n_step=3))
    added = [[], []]
    for t in range(0, 200, 10):
        for lane in (0, 1) if t < 100 else (0,):  # lane 1 is cut at every call, and stops
            added[lane] += buffer.extend(**steps(1, t, 10 - 5 * lane, lane))[0].tolist()
        newest = [[key for key in ids[-10:] if not is_refused(buffer, key)][-4:] for ids in added]
        assert set(buffer.sample(300).ids.tolist()) == {*newest[0], *newest[1]}


def test_a_save_names_them_and_another_process_loads_it(tmp_path: Path) -> None:
    buffer = filled()
    buffer.save(tmp_path)
    code = "b = relive.load(sys.argv[1]); print(b.item, b.sampler, b.sample(6).ids.tolist())"
    expected = f"{buffer.item} {buffer.sampler} {buffer.sample(6).ids.tolist()}"
    found = elsewhere(code, tmp_path)
    assert found.stdout.strip() == expected, found.stderr
    refused = elsewhere(code, tmp_path, register=False).stderr
    assert names_in(refused, "item", "chunks", "load(item)")
    given = elsewhere("relive.load(sys.argv[1], item=relive.Transitions())", tmp_path, register=False).stderr
    assert names_in(given, "sampler", "balanced", "load(sampler)")
    seen = elsewhere("from relive.cli import main; main(['inspect', sys.argv[1]])", tmp_path, register=False).stdout
    assert "chunks(k=3, gamma=0.99)" in seen
    assert "balanced(k=5)" in seen


@pytest.mark.skipif(not kernels.is_native(), reason="only native kernels share")
def test_a_shared_buffer_is_opened_by_name_in_another_process() -> None:
    name = f"own-{os.getpid()}"
    with filled(storage=relive.Shared(name)) as buffer:
        code = "b = relive.open(sys.argv[1], seed=5); print(b.item, b.sampler, b.sample(6).ids.tolist())"
        with relive.open(name, seed=5) as reader:
            expected = f"{buffer.item} {buffer.sampler} {reader.sample(6).ids.tolist()}"
        found = elsewhere(code, name)
        assert found.stdout.strip() == expected, found.stderr
        assert names_in(elsewhere(code, name, register=False).stderr, "item", "chunks", "open(item)")


@pytest.mark.parametrize("sampler", [Balanced(k=5), Bare()])
def test_shards_draw_by_them(sampler: Any) -> None:
    schema, item = filled().schema, Chunks(k=K)
    shards, _ = local_shards(schema, LANES * ROWS, num_envs=LANES, shards=2, item=item, sampler=sampler)
    twin = filled(sampler=None)
    with shards.writer() as writer:
        writer.extend(**rollout())
    batch = shards.sample(512)
    assert_same_batch(batch, twin.read(batch.ids), without=("weights",))
    np.testing.assert_allclose(batch.weights, 1.0, rtol=1e-6)
    if sampler.prioritizes:
        assert shards.update_priorities([0, 1, 2], [50.0, 1.0, 0.0]) == 3
        again = shards.sample(4000)
        np.testing.assert_allclose(again.weights, 1.0, rtol=1e-6)  # a sampler without `weights` corrects nothing
        drawn = again.ids
        assert abs((drawn == 0).sum() / (drawn == 1).sum() - 2.0) < 1.0  # 2 is the cap
        assert not (drawn == 2).any()
    else:
        assert set(batch.ids.tolist()) == set(filled().sample(2000).ids.tolist())


@pytest.mark.parametrize("lacks", ["share", "draw_at", "raise_priority"])
def test_shards_refuse_an_index_without_the_methods(lacks: str) -> None:
    sampler = Bare()
    sampler.lacks = lacks
    with pytest.raises(relive.ArgumentError, match=rf"Bare\(2.0\).*Shards\(sampler\)`: its index has no `{lacks}`"):
        local_shards(filled().schema, 100, sampler=sampler)


def test_an_index_needs_the_methods_of_its_promises() -> None:
    sampler = Bare()
    sampler.lacks = "priorities"
    with pytest.raises(relive.ArgumentError, match="`Bare`, whose index has no `priorities`"):
        filled(sampler=sampler)


def test_shards_are_saved_and_loaded_by_name(tmp_path: Path) -> None:
    from relive.ray._saving import loading, save

    shards, lines = local_shards(
        filled().schema, LANES * ROWS, num_envs=LANES, shards=2, item=Chunks(k=K), sampler=Balanced(k=5)
    )
    with shards.writer() as writer:
        writer.extend(**rollout())
    save(shards._plan, lines, shards._drawer, str(tmp_path))
    found = loading(str(tmp_path), None, None)
    assert (found.item, found.sampler) == (Chunks(k=K), Balanced(k=5))
    choices = {"num_envs": LANES, "shards": 2, "item": found.item, "sampler": found.sampler}
    again, _ = local_shards(found.schema, found.capacity, source=str(tmp_path), **choices)
    ids = shards.sample(64).ids
    assert set(again.sample(512).ids.tolist()) >= set(ids.tolist())
    code = "from relive.ray._saving import loading; loading(sys.argv[1], None, None)"
    assert names_in(elsewhere(code, tmp_path, register=False).stderr, "item", "chunks", "Shards.load(item)")


def test_prefetching_mixing_copying_and_salvaging_work_with_them(tmp_path: Path) -> None:
    import copy

    buffer, twin = filled(), filled()
    with buffer.prefetch(8) as batches:
        assert_same_batch(next(batches), twin.sample(8))
    mixed = relive.Mixture(filled(), filled(seed=1)).sample(8)
    assert mixed.action.shape == (8, K)
    ours = copy.deepcopy(twin)
    assert_same_batch(ours.sample(9), twin.sample(9))
    twin.save(tmp_path / "saved")
    salvage(tmp_path / "saved", tmp_path / "salvaged")
    assert relive.load(tmp_path / "salvaged").item == twin.item


def test_priorities_of_an_own_sampler_are_its_own_after_a_load(tmp_path: Path) -> None:
    """Check that it does not hand them on, as it has no `carried`; a load with an equal one has them unchanged."""
    buffer = filled(sampler=Bare())
    buffer.update_priorities([0, 1], [9.0, 1.5])
    buffer.save(tmp_path)
    assert relive.load(tmp_path, sampler=Bare()).priorities([0, 1]).tolist() == [2.0, 1.5]
    assert relive.load(tmp_path, sampler=relive.Prioritized()).priorities([0, 1]).tolist() == [1.0, 1.0]
    with pytest.raises(relive.ArgumentError, match=r"one of `.*Bare`.*a class that is `relive.saved_as` a name"):
        relive.load(tmp_path)


# Registration.


@relive.saved_as("within")
@dataclass(frozen=True)
class Within(Sampler):
    """A sampler with every kind of field."""

    beta: relive.Anneal
    names: tuple[Any, ...] = ("a", 1.5, None, (True, 2))
    inner: Any = None
    replacement = True

    def index(self, ring: Any, memory: Any) -> Index:
        return relive.Uniform().index(ring, memory)

    def spec(self, lanes: int, rows: int) -> dict[str, Any]:
        return relive.Uniform().spec(lanes, rows)


ANNEAL = relive.Anneal(0.1, 1.0, over=7)


def nested(value: Any, levels: int, kind: Callable[[list[Any]], Any]) -> Any:
    for _ in range(levels):
        value = kind([value])
    return value


SAVED: dict[str, Any] = {
    "an object": Within(ANNEAL, ()),
    "a list": [1, "a", None, [2.5, ()], (True, [])],
    "lists and objects": [Within(ANNEAL, inner=[Within(ANNEAL)])],
    "the deepest tuples": nested((), 29, tuple),
    "the deepest lists": nested(1, 14, list),
}


@pytest.mark.parametrize("case", SAVED)
def test_fields_come_back_as_they_were(tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    sampler = Within(ANNEAL, inner=SAVED[case])
    filled(sampler=sampler).save(tmp_path)
    assert relive.load(tmp_path).sampler == sampler
    assert main(["inspect", str(tmp_path)]) == 0
    assert case != "a list" or "inner=[1, 'a', None, [2.5, ()], (True, [])]" in capsys.readouterr().out


UNSAVED: dict[str, tuple[Any, str]] = {
    "a function": (len, r"a number, a text.*`builtin_function_or_method`"),
    "nan": (float("nan"), "a finite number, got `nan`"),
    "infinity in a tuple": ((1, (-float("inf"),)), "a finite number, got `-inf`"),
    "an infinity of NumPy's": ([np.float32("inf")], "a finite number, got `inf`"),
    "tuples that are too deep": (nested((), 30, tuple), "at most 30 levels.*got more"),
    "lists that are too deep": (nested(1, 15, list), "at most 30 levels.*got more"),
}


@pytest.mark.parametrize("case", UNSAVED)
def test_a_field_that_cannot_be_saved_is_named_and_nothing_is_written(tmp_path: Path, case: str) -> None:
    value, text = UNSAVED[case]
    buffer = filled(sampler=Within(ANNEAL, inner=value))
    with pytest.raises(relive.ArgumentError, match=text + r".*`within\(inner\)`: without `saved_as`"):
        buffer.save(tmp_path / "new", wait=False)
    assert not [file for file in (tmp_path / "new").iterdir() if file.stat().st_size]


@pytest.mark.parametrize("name", ["prioritizes", "spec"])
def test_a_sampler_without_a_base_class_needs_what_has_a_default_there(name: str) -> None:
    lacking = type("Lacking", (), {key: value for key, value in vars(Bare).items() if key not in (name, "__dict__")})
    with pytest.raises(relive.ArgumentError, match=rf"has no `{name}`; the base class `relive.samplers.Sampler` has"):
        filled(sampler=lacking())


def test_a_class_may_be_defined_again() -> None:
    def define(k: int) -> type:
        @relive.saved_as("again")
        @dataclass(frozen=True)
        class Again(Item):
            size: int = k

        return Again

    from relive._buffer.saved_as import _CLASSES, described

    old, new = define(1), define(2)
    assert _CLASSES["again"] is new is not old
    del _CLASSES["again"]
    assert described(relive.Uniform())["kind"] == "Uniform"


@dataclass
class Changing:
    k: int = 0


@dataclass(frozen=True)
class Kind:
    kind: int = 0


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a taken name": (lambda: relive.saved_as("balanced")(Within), "which is that of `own_sampler.Balanced`"),
    "a name of relive's": (lambda: relive.saved_as("Uniform")(Within), "that of `relive.samplers.uniform.Uniform`"),
    "a list's name": (lambda: relive.saved_as("[]"), "letters, digits, `_` and `-`"),
    "not frozen": (lambda: relive.saved_as("changing")(Changing), "a frozen dataclass.*got `Changing`"),
    "a field `kind`": (lambda: relive.saved_as("kind")(Kind), "without a field `kind`, got `Kind`"),
    "a function": (lambda: relive.saved_as("f")(filled), "a frozen dataclass.*got `filled`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_registrations_that_are_refused(case: str) -> None:
    call, text = REFUSED[case]
    with pytest.raises(relive.ArgumentError, match=text):
        call()


DAMAGED: dict[str, dict[str, Any]] = {
    "an item as a sampler": {"kind": "chunks", "k": 3},
    "a field that there is not": {"kind": "balanced", "k": 3, "more": 1},
    "a value that is refused": {"kind": "balanced", "k": 0},
    "no value": {"kind": "balanced"},
    "nested too deep": {"kind": "balanced", "k": [[]]},
    "a list as a sampler": {"kind": "[]", "values": []},
    "a list without values": {"kind": "balanced", "k": {"kind": "[]"}},
    "values that are none": {"kind": "balanced", "k": {"kind": "[]", "values": 5}},
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_descriptions_are_damage(case: str) -> None:
    from relive._buffer.saved_as import built
    from relive._disk.json_files import damaged

    facts = DAMAGED[case]
    if case == "nested too deep":
        for _ in range(40):
            facts = {**facts, "k": [facts["k"]]}
    with pytest.raises(relive.CorruptionError), damaged("here"):
        built("sampler", facts)


@pytest.mark.slow
def test_bit_flipping_is_learned_with_hindsight_alone() -> None:
    pytest.importorskip("torch")
    from bit_flipping import train

    assert train(bits=8, steps=12_000, ratio=0.8, seed=0) > 0.8
    assert train(bits=8, steps=12_000, ratio=0.0, seed=0) < 0.3


@pytest.mark.filterwarnings("ignore::relive.ReliveWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_shards_on_ray_draw_by_them(cluster: Any, tmp_path: Path) -> None:
    from ray import cloudpickle

    from relive.ray import Shards

    for module in (own_item, own_sampler):  # Ray's processes cannot import them
        cloudpickle.register_pickle_by_value(module)
    twin = filled()
    choices = {"item": twin.item, "sampler": twin.sampler, "actor_options": {"num_cpus": 0, "memory": None}}
    try:
        with Shards(twin.schema, LANES * ROWS, num_envs=LANES, shards=2, seed=0, **choices) as shards:
            with shards.writer() as writer:
                writer.extend(**rollout())
            batch = shards.sample(256)
            assert_same_batch(batch, twin.read(batch.ids), without=("weights",))
            assert set(batch.ids.tolist()) == set(twin.sample(2000).ids.tolist())
            shards.save(tmp_path)
        with Shards.load(tmp_path, actor_options=choices["actor_options"]) as again:
            assert (again.item, again.sampler) == (twin.item, twin.sampler)
            drawn = again.sample(64)
            assert_same_batch(drawn, twin.read(drawn.ids), without=("weights",))
    finally:
        for module in (own_item, own_sampler):
            cloudpickle.unregister_pickle_by_value(module)
