"""What a buffer was built from, as JSON, and back. No class is looked up by a name that a file gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .. import items, samplers, storage
from .._base.frozen import Frozen
from .._base.nests import mapped
from .._flow.limiter import RateLimiter
from ..errors import ArgumentError, MissingExtra, ReliveError, message
from ..schema import Field, Schema

if TYPE_CHECKING:
    from .._base.memory import Arena
    from .._base.types import Int64
    from .._ring.plans import Window
    from .._ring.ring import Ring

_KNOWN: dict[str, tuple[type[Frozen], ...]] = {
    "item": (items.Transitions, items.Sequences),
    "sampler": (samplers.Uniform, samplers.Prioritized, samplers.Ranked),
    "beta": (samplers.Anneal,),
    "storage": (storage.Ram,),
    "limiter": (RateLimiter,),
}
_KINDS = {kind for kinds in _KNOWN.values() for kind in kinds}
# Any other text is read as a list of fields.
_DTYPES = {"bfloat16", *(np.dtype(code).name for code in "?bBhHiIlLqQefdFD")}
_DEEPEST = 30


class Undrawn(Frozen):
    """An item of a save that only its author's code can make: what it needs of the steps is saved, how it draws is not.

    A buffer with it can be filled and saved, and is described as the one that was saved.

    Args:
        facts: How `described` described the item.
        needs: Its window.
    """

    facts: dict[str, Any]
    needs: Window

    def window(self, schema: Schema) -> Window:
        """As it was saved."""
        return self.needs

    def check(self, schema: Schema, rows: int) -> None:
        """Refuse rows that a whole item does not fit in; the rest was checked when the buffer was made."""
        needed = self.needs.span + self.needs.lookback
        if needed > rows:
            raise ArgumentError(
                message(f"an item of at most {rows} steps, the rows of a lane", f"{needed}", "$.window")
            )

    def bind(self, schema: Schema, ring: Ring, arena: Arena) -> Undrawn:
        """Nothing is prepared: nothing can be drawn."""
        return self

    def expand(self, slots: Int64, rng: np.random.Generator) -> NoReturn:
        """Refuse every draw."""
        raise ArgumentError(message("an item that can be drawn", f"`{self.facts['kind']}`", "$.item"))


def described(choice: object) -> dict[str, Any]:
    """An item, a sampler, a storage or a limiter as JSON; one of a user's own by its class's name and its text."""
    if isinstance(choice, Undrawn):
        return choice.facts
    if type(choice) not in _KINDS:
        return {"kind": f"{type(choice).__module__}.{type(choice).__qualname__}", "text": repr(choice)}
    values = {name: described(value) if isinstance(value, Frozen) else value for name, value in vars(choice).items()}
    return {"kind": type(choice).__name__, **values}


def built(name: str, facts: Any) -> Any:
    """The choice `name` (of `_KNOWN`) that `described` gave; None for one that is not relive's own.

    Raises:
        ValueError, KeyError, TypeError: The facts are damaged.
    """
    values = {**facts}
    kind = {kind.__name__: kind for kind in _KNOWN[name]}.get(values.pop("kind"))
    if kind is None:
        return None
    for key, value in values.items():
        if isinstance(value, dict):
            values[key] = built(key, value)
        elif not isinstance(value, int | float | str | None) and key != "error_buffer":
            raise ValueError(f"invalid {key}")
    try:
        return kind(**values)
    except ReliveError as error:
        raise ValueError(str(error)) from None


def fields_of(schema: Schema) -> dict[str, Any]:
    """A schema as JSON: objects for mappings, lists for fields."""
    facts: dict[str, Any] = mapped(_field, schema.tree)
    return facts


def schema_of(facts: Any) -> Schema:
    """The schema that `fields_of` described.

    Raises:
        ValueError, KeyError, TypeError: The facts are damaged.
        MissingExtra: A field is of bfloat16, and `ml_dtypes` is not installed.
    """
    try:
        return Schema(**{name: _tree(entry, 1) for name, entry in facts.items()})
    except MissingExtra:
        raise
    except ReliveError as error:
        raise ValueError(str(error)) from None


def _field(field: Field) -> list[Any]:
    stack = [] if field.stack is None else [{"stack": field.stack, "pad": field.pad, "stack_axis": field.stack_axis}]
    every = [] if field.every is None else [{"every": field.every}]
    return [field.dtype.name, list(field.shape), *stack, *every]


def _tree(facts: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError("fields are nested too deep")
    if isinstance(facts, dict):
        return {name: _tree(entry, depth + 1) for name, entry in facts.items()}
    dtype, shape, *more = facts
    if dtype not in _DTYPES or not isinstance(shape, list):
        raise ValueError("invalid field")
    options: dict[str, Any] = {}
    for entry in more:
        options |= entry
    return Field(tuple(shape), dtype, **options)
