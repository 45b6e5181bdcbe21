"""Classes of annotated fields: they behave as the frozen dataclasses and named tuples that they look like."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import relive
from relive._base.frozen import Frozen, Record

if TYPE_CHECKING:
    from dataclasses import KW_ONLY
else:
    KW_ONLY = dataclasses.KW_ONLY


class Mixed(Frozen):
    first: int
    second: int = 2
    _: KW_ONLY
    third: int
    fourth: str = "d"


@dataclasses.dataclass(frozen=True)
class LikeMixed:
    first: int
    second: int = 2
    _: KW_ONLY
    third: int
    fourth: str = "d"


class Later(Mixed, kw_only=True):
    fifth: float = 5.0


@dataclasses.dataclass(frozen=True)
class LikeLater(LikeMixed):
    _: KW_ONLY
    fifth: float = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Users(relive.Prioritized):
    """A sampler of somebody's own."""

    extra: int = 3


PAIRS = [(Mixed, LikeMixed), (Later, LikeLater)]


def outcome(call: Callable[[], Any]) -> str:
    try:
        return repr(call()).replace("Like", "")
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("Like", "")


ARGUMENTS = [
    ((1,), {"third": 3}), ((1, 5), {"third": 3, "fourth": "x"}), ((), {"first": 1, "third": 3}),
    ((), {}), ((1,), {}), ((1, 2, 3), {"third": 4}), ((1,), {"first": 1, "third": 3}), ((1,), {"third": 3, "sixth": 6}),
    ((1, 2, 3, 4, 5, 6), {}), ((), {"sixth": 6}),
]  # fmt: skip


@pytest.mark.parametrize(("mine", "real"), PAIRS)
@pytest.mark.parametrize(("args", "named"), ARGUMENTS)
def test_arguments_are_taken_and_refused_as_a_dataclass_does(mine, real, args, named):
    """Compare results and errors; after Python's own words, ours name the fields."""
    got, expected = outcome(lambda: mine(*args, **named)), outcome(lambda: real(*args, **named))
    assert got == expected or (got.startswith(f"{expected}: ") and "TypeError" in got)


@pytest.mark.parametrize(("mine", "real"), PAIRS)
def test_the_rest_is_that_of_a_dataclass(mine, real):
    ours, theirs = mine(1, third=3), real(1, third=3)
    assert inspect.signature(mine) == inspect.signature(real)
    assert mine.__match_args__ == real.__match_args__
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs) == vars(ours)
    assert [field.name for field in dataclasses.fields(mine)] == [field.name for field in dataclasses.fields(real)]
    assert dataclasses.replace(ours, second=7) == ours.__replace__(second=7) == mine(1, 7, third=3)
    for change in (lambda o: setattr(o, "first", 2), lambda o: setattr(o, "new", 2), lambda o: delattr(o, "first")):
        assert outcome(lambda c=change: c(ours)) == outcome(lambda c=change: c(theirs)) != "None"
    assert (ours == mine(1, third=3), ours == mine(2, third=3), ours == theirs, ours == 1) == (
        True,
        False,
        False,
        False,
    )
    assert hash(ours) == hash(mine(1, third=3)) != hash(mine(2, third=3))
    for same in (copy.copy(ours), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert type(same) is mine
        assert same == ours


def test_choices_can_be_changed_and_extended_as_dataclasses():
    sampler = relive.Prioritized(beta=relive.Anneal(0.4, 1.0, over=3))
    assert dataclasses.replace(sampler, alpha=0.5) == relive.Prioritized(alpha=0.5, beta=sampler.beta)
    assert dataclasses.asdict(sampler)["beta"] == {"start": 0.4, "end": 1.0, "over": 3}
    assert repr(Users(alpha=0.5)).endswith("newest='largest', extra=3)")
    assert "extra" in inspect.signature(Users).parameters
    with pytest.raises(relive.ArgumentError, match="alpha"):
        Users(alpha=-1)


class Pair(Record):
    first: int
    second: int


class LikePair(NamedTuple):
    first: int
    second: int


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: kind(1, 2), lambda kind: kind(1, second=2), lambda kind: kind(second=2, first=1),
        lambda kind: kind._make([1, 2]), lambda kind: kind(1, 2).second, lambda kind: (*kind(1, 2),),
        lambda kind: pickle.loads(pickle.dumps(kind(1, 2))), lambda kind: copy.copy(kind(1, 2)),
        lambda kind: kind(1, 2) == (1, 2), lambda kind: kind.__match_args__, lambda kind: kind._fields,
    ],
)  # fmt: skip
def test_a_record_is_a_named_tuple(use):
    assert repr(use(Pair)) == repr(use(LikePair)).replace("Like", "")


@pytest.mark.parametrize("args", [(), (1,), (1, 2, 3)])
def test_a_record_takes_all_of_its_fields(args):
    with pytest.raises(TypeError, match="first, second"):
        Pair(*args)
    for named in ({"third": 3}, {"first": 1, "second": 2, "third": 3}):
        with pytest.raises(TypeError):
            Pair(*args, **named)
    with pytest.raises(AttributeError):
        Pair(1, 2).first = 3
    with pytest.raises(AttributeError):
        Pair(1, 2).other = 3
