"""`Chosen`: an attribute of a buffer that is set once, when the buffer is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")


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
        if vars(buffer).setdefault(self._name, value) != value:
            remedy = "`relive.load(path, ...)` can change choices"
            raise AttributeError(f"`{self._name}` is chosen when a buffer is made; {remedy}")
