"""The names under which saves know the classes of choices. No class is looked up by an import path of a file."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from .. import items, samplers, storage
from .._base.frozen import Frozen
from .._flow.limiter import RateLimiter, as_it_waited
from ..errors import ArgumentError, ReliveError, message
from .arguments import METHODS
from .undrawn import Undrawn

C = TypeVar("C", bound=type)

_CLASSES: dict[str, type] = {}
_NAMES: dict[type, str] = {}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}")
_DEEPEST = 30
_REMEDY = "without `saved_as` the whole object is given to `load` again"
# Fields that earlier versions do not know: saves have them only where they are not as here.
_SINCE = {
    ("Transitions", "chunk"): False,
    ("Sequences", "step_ids"): False,
    ("Sequences", "trim"): False,
    ("Sequences", "ahead"): (),
    ("Prioritized", "newest"): "largest",
}
_LIST = "[]"  # the kind of a list, which no class can have as its name; tuples are lists in JSON


def saved_as(name: str) -> Callable[[C], C]:
    """Register a class of choices for saves: a sampler, an item, a storage, or what these have in their fields.

    A save has the name and the fields of the object; `relive.load`, `relive.open` and `Shards.load` build an equal one
    where a class is registered under the name, so the module that defines it has to be imported before. Elsewhere they
    ask for the object: `load(path, sampler=...)`.

    Args:
        name: Letters, digits, `_` and `-`, at most 80, beginning with a letter or `_`. A name belongs to one class;
            a class that is defined again, as in a notebook, takes the place of its older self.

    Returns:
        A decorator of a frozen dataclass whose constructor does nothing but check its fields. These are finite numbers,
        texts, None, tuples and lists of such values, or objects whose class is registered, too.

    Raises:
        ArgumentError: Another class has this name, or the class is no frozen dataclass.

    >>> from dataclasses import dataclass
    >>> import numpy as np, relive, tempfile
    >>> from relive.items import Item, Window
    >>> @relive.saved_as("next-rewards")
    ... @dataclass(frozen=True)
    ... class NextRewards(Item):
    ...     k: int = 2
    ...     def window(self, schema):
    ...         return Window(span=self.k)
    ...     def check(self, schema, rows):
    ...         pass
    ...     def bind(self, schema, ring, arena):
    ...         return BoundRewards(self, ring)
    >>> class BoundRewards:
    ...     def __init__(self, item, ring):
    ...         self.ring, self.ones = ring, np.ones(item.k + 1)
    ...     def expand(self, slots, rng):
    ...         found = self.ring.windows(slots, self.ones.astype("f4"))
    ...         return {"sum": self.ring.fold(self.ring.reward, found.at, found.steps, self.ones), "ids": found.ids}
    >>> schema = relive.Schema(obs=relive.Field(), action=relive.Field())
    >>> buffer = relive.ReplayBuffer(schema, 10, item=NextRewards(k=3), seed=0)
    >>> time, no = np.arange(5.0), np.zeros(5, bool)
    >>> ids = buffer.extend(obs=time, action=time, reward=time, next_obs=time + 1, terminated=no, truncated=no)
    >>> path = tempfile.mkdtemp()
    >>> saved = buffer.save(path)
    >>> loaded = relive.load(path)
    >>> loaded.item, loaded.read([0, 2]).sum.tolist()
    (NextRewards(k=3), [3.0, 9.0])
    """
    at = "saved_as(name)"
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ArgumentError(message("letters, digits, `_` and `-`, at most 80", f"`{name!r}`"[:100], at))

    def register(kind: C) -> C:
        _fields(kind)
        known = _CLASSES.get(name, kind)
        if _path(known) != _path(kind):
            got = f"`{name}`, which is that of `{_path(known)}`"
            raise ArgumentError(message(f"a name of its own for `{_path(kind)}`", got, at))
        _CLASSES[name], _NAMES[kind] = kind, name
        return kind

    return register


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _fields(kind: Any) -> list[str]:
    """List the names of the fields that a constructor takes.

    Raises:
        ArgumentError: It is no frozen dataclass.
    """
    if isinstance(kind, type) and issubclass(kind, Frozen):
        return list(kind._kinds)
    frozen = isinstance(kind, type) and getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    names = [field.name for field in dataclasses.fields(kind) if field.init] if frozen else ["kind"]
    if "kind" in names:
        wanted = "a frozen dataclass without a field `kind`"
        raise ArgumentError(message(wanted, f"`{getattr(kind, '__qualname__', kind)}`", "saved_as"))
    return names


def described(choice: object, depth: int = 0) -> dict[str, Any]:
    """Describe a choice as JSON; if its class is not registered, by the class's full name and its text.

    Raises:
        ArgumentError: A field cannot be saved.
    """
    kind = type(choice)
    if isinstance(choice, Undrawn):
        return choice.facts
    if kind not in _NAMES:
        return {"kind": _path(kind), "text": repr(choice)}
    name = _NAMES[kind]
    values = {key: getattr(choice, key) for key in _fields(kind)}
    return {
        "kind": name,
        **{
            key: _described(value, f"{name}({key})", depth + 1)
            for key, value in values.items()
            if _SINCE.get((name, key), ...) != value
        },
    }


def _described(value: Any, at: str, depth: int) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if depth > _DEEPEST:
        raise ArgumentError(message(f"at most {_DEEPEST} levels of values in values", "more", at, _REMEDY))
    if isinstance(value, float) and not math.isfinite(value):
        raise ArgumentError(message("a finite number", f"`{value}`", at, _REMEDY))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [_described(each, at, depth + 1) for each in value]
    if isinstance(value, list):
        return {"kind": _LIST, "values": _described(tuple(value), at, depth + 1)}
    if type(value) in _NAMES:
        return described(value, depth)
    wanted = "a number, a text, None, a tuple or a list of these, or an object whose class is `relive.saved_as` a name"
    raise ArgumentError(message(wanted, f"`{type(value).__name__}`", at, _REMEDY))


def built(role: str, facts: Any) -> Any:
    """Build the choice that `described` gave; return None if its class, or that of a field, is not registered.

    Raises:
        ValueError, KeyError, TypeError: The facts are damaged.
    """
    if missing(facts) is not None:
        return None
    made = _built(as_it_waited(facts) if role == "limiter" else facts)
    if not all(hasattr(made, method) for method in METHODS[role]):
        raise ValueError(f"`{facts['kind']}` is no {role}")
    return made


def _built(facts: Any) -> Any:
    if isinstance(facts, list):
        return tuple(map(_built, facts))
    if not isinstance(facts, dict):
        return facts
    if facts["kind"] == _LIST:
        return list(_built(facts["values"]))
    kind = _CLASSES[facts["kind"]]
    values = {key: _built(value) for key, value in facts.items() if key != "kind"}
    if not values.keys() <= {*_fields(kind)}:
        raise ValueError(f"invalid fields of `{facts['kind']}`")
    try:
        return kind(**values)
    except ReliveError as error:
        raise ValueError(str(error)) from None


def missing(facts: Any, depth: int = 0) -> str | None:
    """Find the first name in a description under which no class is registered.

    Raises:
        ValueError, KeyError, TypeError: The facts are damaged.
    """
    if depth > _DEEPEST:
        raise ValueError("fields are nested too deep")
    if isinstance(facts, dict):
        name = facts["kind"]
        if name != _LIST and name not in _CLASSES:
            return str(name)
        facts = list(facts.values())
    parts = facts if isinstance(facts, list) else []
    return next((found for each in parts if (found := missing(each, depth + 1)) is not None), None)


def text_of(facts: Mapping[str, Any]) -> str:
    """Format a description as text, whether its classes are registered or not."""
    if facts.keys() == {"kind", "text"}:
        return str(facts["text"])
    return f"{facts['kind']}({', '.join(f'{key}={_text(value)}' for key, value in facts.items() if key != 'kind')})"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return f"[{', '.join(map(_text, value['values']))}]" if value["kind"] == _LIST else text_of(value)
    return f"({', '.join(map(_text, value))})" if isinstance(value, list) else repr(value)


def not_given(role: str, facts: Any, at: str, remedy: str = "give an equal one", where: str = "save") -> ArgumentError:
    """Make the error about a choice that only its author's class can build."""
    name = str(missing(facts))[:80]
    if name in samplers.GONE:
        remedy = f"it is gone: give {samplers.GONE[name]}"
    elif "." in name:
        remedy += "; a class that is `relive.saved_as` a name is built again"
    else:
        remedy += f', or import the module whose class is `relive.saved_as("{name}")`'
    return ArgumentError(message(f"`{role}=`", f"none, and the {where} has one of `{name}`", at, remedy))


# Those of relive's own that a few values describe.
for _kind in (
    items.Transitions,
    items.Sequences,
    items.Windows,
    samplers.Uniform,
    samplers.Prioritized,
    samplers.Anneal,
    samplers.Recent,
    samplers.Blend,
    samplers.Once,
    storage.Ram,
    RateLimiter,
):
    saved_as(_kind.__name__)(_kind)
