"""What a buffer is built from, checked, and the arrays that follow from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from .. import items
from .._base import check
from .._base.arrays import ArraySpec
from .._base.forks import importing
from .._base.frozen import Frozen
from .._ring.lanes import boundaries_of, reserved, rows_of
from .._ring.plans import Window
from .._ring.ring import Ring
from ..errors import ArgumentError, message
from ..samplers import Sampler, Uniform
from ..schema import Schema
from .arguments import choice, identity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from .._flow.limiter import RateLimiter


T = TypeVar("T")


class Choices(Frozen):
    """The choices of a buffer; how many processes see its arrays is left to its `Access`.

    Attributes:
        schema: The fields of a step.
        num_envs: Lanes.
        steps: Steps that a lane keeps.
        boundaries: What is reserved for final observations: a share of the rows, or their number in each lane.
        item: What one draw expands to.
        sampler: Which items are drawn.
        limiter: The rules of how fast steps are added and items drawn; None: there are none.
    """

    schema: Schema
    num_envs: int
    steps: int
    boundaries: float
    item: items.Item
    sampler: Sampler
    limiter: RateLimiter | None

    @classmethod
    def checked(
        cls,
        schema: Any,
        capacity: Any,
        num_envs: Any,
        item: Any,
        sampler: Any,
        limiter: Any,
        boundaries: Any,
        at: str = "ReplayBuffer",
    ) -> Choices:
        """Check the choices given to `ReplayBuffer`.

        Raises:
            ArgumentError: A choice of another kind, a value outside its limits, or a combination that makes no sense.
        """
        if not isinstance(schema, Schema):
            remedy = "make one by `relive.Schema(obs=..., action=...)` or `relive.Schema.from_spaces(...)`"
            raise ArgumentError(message("a `Schema`", f"`{type(schema).__name__}`", f"{at}(schema)", remedy))
        lanes = check.integer(num_envs, f"{at}(num_envs)", minimum=1)
        steps = check.integer(capacity, f"{at}(capacity)", minimum=1) // lanes
        if steps < 1:
            wanted = f"a capacity of at least one step for each of {num_envs} lanes"
            raise ArgumentError(message(wanted, f"`{capacity}`", f"{at}(capacity)"))
        share = boundaries_of(boundaries, f"{at}(boundaries)")
        item = choice(item, items.Transitions(), "item", f"{at}(item)")
        sampler = choice(sampler, Uniform(), "sampler", f"{at}(sampler)")
        item.check(schema, steps)
        if limiter is not None:
            with importing:
                from .._flow.limiter import checked

            limiter = checked(limiter)
        return cls(schema, lanes, steps, share, item, sampler, limiter)

    @classmethod
    def of_new(cls, *given: Any) -> Choices:
        """Check the choices given for a new buffer of rings, and settle how many rows its lanes reserve."""
        made = cls.checked(*given)
        return made.__replace__(boundaries=reserved(made.boundaries, made.num_envs, made.steps))

    @property
    def rows(self) -> int:
        """Rows of a lane."""
        return rows_of(self.steps, self.boundaries)

    @property
    def window(self) -> Window:
        """The rows around an anchor that the item needs."""
        return self.item.window(self.schema)

    @property
    def identity(self) -> bytes:
        """A digest of all that decides what the arrays mean."""
        return identity(self.schema, self.num_envs, self.rows, self.steps, self.window, self.sampler)

    def ring_spec(self, window: Window, keeps: Sequence[str]) -> dict[str, ArraySpec]:
        """Return the specs of the ring's arrays, whose windows and bookkeeping may be those of several processes."""
        arrays = Ring.spec(self.schema, window, self.num_envs, self.rows, keeps)
        return {f"ring/{name}": wanted for name, wanted in arrays.items()}

    def spec(self, window: Window, keeps: Sequence[str]) -> dict[str, ArraySpec]:
        """Return the specs of all arrays: those of the ring, the sampler and the limiter."""
        spec = self.ring_spec(window, keeps)
        arrays = self.sampler.spec(self.num_envs, self.rows)
        spec |= {f"sampler/{name}": wanted for name, wanted in arrays.items()}
        if self.limiter is not None:
            with importing:
                from .._flow.limit import NAME, SPEC

            spec[NAME] = SPEC
        return spec


class Chosen(Generic[T]):
    """An attribute that refuses another value, which would change nothing but itself."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, buffer: None, owner: Any) -> Self: ...

    @overload
    def __get__(self, buffer: object, owner: Any) -> T: ...

    def __get__(self, buffer: object, owner: Any) -> T | Self:
        return self if buffer is None else vars(buffer)[self._name]

    def __set__(self, buffer: object, value: T) -> None:
        chosen = vars(buffer).setdefault(self._name, value)
        if chosen is not value and chosen != value:
            remedy = "`relive.load(path, ...)` can change choices"
            raise AttributeError(f"`{self._name}` is chosen when a buffer is made; {remedy}")
