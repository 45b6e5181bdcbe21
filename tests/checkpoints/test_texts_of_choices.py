"""Texts and numbers of other classes than Python's own, in every choice: what is loaded goes on, bit for bit."""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from depth import pairs

import relive
from relive.samplers import Sampler
from relive.testing.agreement import assert_same_batch
from relive.trajectories import Selection


class Plain(str):
    """A text with more to it."""


def of_enum(text: str) -> str:
    return enum.Enum("Told", {"IT": text}, type=str).IT  # type: ignore[return-value, attr-defined]


def of_str_enum(text: str) -> str:
    return enum.StrEnum("Told", {"IT": text}).IT  # type: ignore[return-value, attr-defined]


class Three(enum.IntEnum):
    THREE = 3


TEXTS: dict[str, Callable[[str], Any]] = {
    "NumPy's": np.str_, "a subclass": Plain, "an enum": of_enum, "a StrEnum": of_str_enum,
}  # fmt: skip


@relive.saved_as("told")
@dataclass(frozen=True)
class Told(Sampler):
    """One of a user's own, which keeps the texts that it is given."""

    scale: str = "none"
    count: int = 3

    @property
    def replacement(self) -> bool:
        return True

    @property
    def prioritizes(self) -> bool:
        return True

    def spec(self, lanes: int, rows: int) -> Any:
        return self._of.spec(lanes, rows)

    def index(self, ring: Any, memory: Any) -> Any:
        return self._of.index(ring, memory)

    def carried(self, slots: Any, whole: Any) -> Any:
        return self._of.carried(slots, whole)

    @property
    def _of(self) -> relive.Prioritized:
        return relive.Prioritized(weights=str.__str__(self.scale), beta=relive.Anneal(0.4, 1.0, over=20))


def schema(text: Callable[[str], Any], number: Any = 3) -> relive.Schema:
    frames = relive.Field((2,), text("float32"), stack=number, pad=text("first"))
    return relive.Schema(obs={text("camera"): frames}, action=relive.Field(), **{text("more"): relive.Field((number,))})


CHOICES: dict[str, Callable[[Callable[[str], Any], Any], dict[str, Any]]] = {
    "weights": lambda text, n: {"sampler": relive.Prioritized(weights=text("none"), beta=relive.Anneal(0.4, 1, n))},
    "buffer": lambda text, n: {"sampler": relive.Prioritized(weights=text("buffer"), beta=relive.Anneal(0.4, 1.0, n))},
    "one's own": lambda text, n: {"sampler": Told(scale=text("none"), count=n)},
    "over": lambda text, n: {"sampler": relive.Uniform(over=text("episodes"))},
    "steps": lambda text, n: {"sampler": relive.Uniform(over=text("steps")), "item": relive.Transitions(n_step=n)},
    "sequences": lambda text, n: {"item": relive.Sequences(n, burn_in=n)},
    "limiter": lambda text, n: {"limiter": relive.RateLimiter(samples_per_insert=1, min_size=n, error_buffer=1e4)},
}  # fmt: skip


def live(buffer: relive.ReplayBuffer) -> None:
    for t in range(40):
        frames = np.repeat(np.arange(t, t + 4)[:, None], 2, 1)
        more = {"more": np.full(3, t)} if len(buffer.schema.columns) > 3 else {}
        buffer.add(
            obs={"camera": frames[:3]}, action=0, reward=t, next_obs={"camera": frames[1:]}, terminated=t % 9 == 8,
            truncated=False, **more,
        )  # fmt: skip


def plain(value: object) -> Any:
    """Return True if all texts and numbers in a choice are Python's own."""
    if isinstance(value, dict):
        return all(plain(each) for pair in value.items() for each in pair)
    if isinstance(value, tuple):
        return all(map(plain, value))
    if hasattr(type(value), "__dataclass_fields__"):
        return all(plain(getattr(value, name)) for name in type(value).__dataclass_fields__)
    return type(value) in (str, int, float, bool, type(None)) or isinstance(value, np.dtype)


@pytest.mark.parametrize(("name", "kind"), pairs(CHOICES, [*TEXTS]))
def test_a_load_is_not_one_under_other_choices(kind: str, name: str, tmp_path: Any) -> None:
    choices = CHOICES[name](TEXTS[kind], Three.THREE)
    own = name == "one's own"
    assert own or all(map(plain, choices.values()))
    buffer = relive.ReplayBuffer(schema(TEXTS[kind], Three.THREE), Three.THREE * 30, seed=0, **choices)
    usual = relive.ReplayBuffer(schema(str), 90, seed=0, **CHOICES[name](str, 3))
    assert own or repr(buffer) == repr(usual)
    assert repr(buffer.schema) == repr(usual.schema)
    assert plain(buffer.schema.tree)
    for each in (buffer, usual):
        live(each)
        for _ in range(10):
            batch = each.sample(8)
            if name in ("weights", "buffer", "one's own"):
                each.update_priorities(batch.ids, np.arange(8.0))
    buffer.save(tmp_path)
    loaded, again = relive.load(tmp_path), relive.load(tmp_path, **choices)
    copy = loaded if own else pickle.loads(pickle.dumps(buffer))
    expected = usual.sample(8)
    for each in (buffer, loaded, *(() if own else (again, copy))):
        assert_same_batch(each.sample(8), expected)


@pytest.mark.parametrize("kind", TEXTS)
def test_texts_of_storages_and_other_arguments(kind: str, tmp_path: Any) -> None:
    text = TEXTS[kind]
    named = relive.Mapped(text(f"{tmp_path}/ring")).path, relive.Shared(text("told")).name
    assert set(map(type, (*named, Selection(per=text("task")).per))) == {str}
    hindsight = relive.Hindsight(reward=len, strategy=text("final"))
    assert (type(hindsight.strategy), repr(hindsight.strategy)) == (str, "'final'")
    buffer = relive.ReplayBuffer(schema(str), 90, seed=0, storage=relive.Mapped(text(f"{tmp_path}/ring")))
    live(buffer)
    assert buffer.column(text("reward")).max() == 39
    buffer.save(text(f"{tmp_path}/saved"))
    assert_same_batch(relive.load(text(f"{tmp_path}/saved")).sample(8), buffer.sample(8))
    buffer.close()
    with relive.open(text(f"{tmp_path}/ring")) as opened:
        assert len(opened) == 40
