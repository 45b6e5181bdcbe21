"""Classes of annotated fields whose instances never change.

What `dataclasses.dataclass(frozen=True)` gives, but no text is compiled for each class, which took most of the time of
`import relive`. Type checkers see a dataclass, and so do the functions of `dataclasses`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from dataclasses import Field
    from inspect import Signature

Self = TypeVar("Self", bound="Frozen")


class _OfTwin:
    """A class attribute that is found when it is asked for, with the real dataclass of the same fields."""

    def __init__(self, find: Callable[[Any, type], object]) -> None:
        self._find = find

    def __get__(self, instance: object, owner: type[Frozen]) -> Any:
        return self._find(owner, _twin(owner))


def _signature(owner: type, twin: type) -> Signature | None:
    import inspect

    return inspect.signature(twin) if owner.__init__ is Frozen.__init__ else None  # type: ignore[misc]


@dataclass_transform(frozen_default=True)
class Frozen:
    """The base of a class of annotated fields; those with a default are optional.

    `kw_only=True`, or an annotation `_: KW_ONLY` before them, makes fields keyword arguments. `__post_init__` checks
    them, and may replace them by `object.__setattr__`.

    >>> class Point(Frozen):
    ...     x: float
    ...     y: float = 0.0
    >>> Point(1.0), Point(1.0) == Point(1.0, y=0.0)
    (Point(x=1.0, y=0.0), True)
    """

    _kinds: ClassVar[dict[str, Any]] = {}
    _defaults: ClassVar[dict[str, Any]] = {}
    __match_args__: ClassVar[tuple[str, ...]] = ()
    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    else:
        __dataclass_fields__ = _OfTwin(lambda owner, twin: twin.__dataclass_fields__)
        __dataclass_params__ = _OfTwin(lambda owner, twin: twin.__dataclass_params__)
        __signature__ = _OfTwin(_signature)

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        super().__init_subclass__()
        cls._kinds, positional = dict(cls._kinds), cls.__match_args__
        for name, kind in cls.__annotations__.items():
            if kind == "KW_ONLY":
                kw_only = True
            elif name not in cls._kinds and "ClassVar" not in str(kind):
                cls._kinds[name] = kind
                positional += () if kw_only else (name,)
        cls.__match_args__ = positional  # type: ignore[misc]
        cls._defaults = {name: getattr(cls, name) for name in cls._kinds if hasattr(cls, name)}

    def __init__(self, *args: Any, **given: Any) -> None:
        taken = self.__match_args__[: len(args)]
        values = self._defaults | dict(zip(taken, args, strict=False)) | given
        if len(args) > len(taken) or values.keys() != self._kinds.keys() or not given.keys().isdisjoint(taken):
            try:
                _twin(type(self))(*args, **given)
            except TypeError as error:  # the one that Python has for it
                raise TypeError(f"{error}: {type(self).__name__} has {', '.join(self._kinds) or 'none'}") from None
        for name, value in values.items():
            if isinstance(value, str):  # NumPy's, or an enum's: it has to have the text of a plain one
                values[name] = str.__str__(value)
        vars(self).update(values)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the fields."""

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._kinds)})"

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __replace__(self: Self, **changes: Any) -> Self:
        return type(self)(**(vars(self) | changes))

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._kinds)

    if not TYPE_CHECKING:  # for type checkers every other attribute is unknown, and each of these read-only

        def __setattr__(self, name: str, value: object) -> None:
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name: str) -> None:
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot delete field {name!r}")


def _twin(cls: type[Frozen]) -> type:
    """Make a real dataclass with the fields of `cls`."""
    from dataclasses import field, make_dataclass

    fields = []
    for name, kind in cls._kinds.items():
        default = {"default": cls._defaults[name]} if name in cls._defaults else {}
        fields.append((name, kind, field(kw_only=name not in cls.__match_args__, **default)))
    return make_dataclass(cls.__qualname__, fields, frozen=True)


class _RecordType(type):
    """Gives records no room for other attributes."""

    def __new__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> Any:
        return super().__new__(cls, name, bases, {"__slots__": (), **names})


class Record(tuple[Any, ...], metaclass=_RecordType):
    """The base of a tuple with named fields; `typing.NamedTuple` for type checkers, without what that compiles.

    >>> class Pair(Record):
    ...     first: int
    ...     second: int
    >>> Pair(1, second=2), Pair(1, 2).second
    (Pair(first=1, second=2), 2)
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields = cls.__match_args__ = tuple(cls.__annotations__)  # type: ignore[misc]
        for position, name in enumerate(cls._fields):
            setattr(cls, name, property(itemgetter(position)))

    def __new__(cls, *values: Any, **named: Any) -> Any:
        left = cls._fields[len(values) :]
        if len(values) + len(left) != len(cls._fields) or named.keys() != set(left):
            raise TypeError(f"{cls.__name__}() takes {', '.join(cls._fields)}")
        return tuple.__new__(cls, (*values, *(named[name] for name in left)))

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Any:
        return cls(*values)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **changes: Any) -> Any:
        return type(self)(**(self._asdict() | changes))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        fields = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({', '.join(fields)})"
