"""The values in a pickle, read as data: what it names is not looked up, and what it wants called is not called."""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

MOST_STEPS = 100_000


class Named(NamedTuple):
    """What a pickle names, such as `torch.FloatStorage`."""

    name: str


class Call(NamedTuple):
    """What a pickle wants called."""

    name: str
    args: tuple[Any, ...]


class Handle(NamedTuple):
    """What stands for something outside the pickle."""

    value: Any


class Span(NamedTuple):
    """Bytes in the pickle: where they start, and how many."""

    start: int
    size: int


_SCALARS = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_BYTES = {"SHORT_BINBYTES": 2, "BINBYTES": 5, "BINBYTES8": 9}  # and the bytes of the opcode with its count
_PUT, _GET = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}


def value(file: BinaryIO) -> Any:
    """The value that a pickle, from the file's position on, describes; the position is then behind it.

    Dictionaries, lists, tuples, texts and numbers are themselves; anything else is one of the classes above.

    Raises:
        ValueError: There is no pickle, or it has opcodes that such values do not need.
    """
    machine = _Machine()
    try:
        for count, (opcode, arg, at) in enumerate(pickletools.genops(file)):
            if count == MOST_STEPS:
                raise ValueError(f"more than {MOST_STEPS} opcodes")
            machine.step(opcode.name, arg, at or 0)
        (found,) = machine.stack
    except (LookupError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise ValueError(f"a pickle that makes no sense: {error!r}"[:80]) from None
    return found


class _Machine:
    """The stack, the marks on it, and the memo."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, arg: Any, at: int) -> None:
        stack = self.stack
        if name in _SCALARS:
            stack.append(arg)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _BYTES:
            stack.append(Span(at + _BYTES[name], len(arg)))
        elif name in _TUPLES:
            stack.append(tuple(self._last(_TUPLES[name])))
        elif name in _PUT:
            self.memo[arg] = stack[-1]
        elif name in _GET:
            stack.append(self.memo[arg])
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name == "MARK":
            self.marks.append(len(stack))
        elif name not in ("PROTO", "FRAME", "STOP"):
            self._build(name, arg)

    def _build(self, name: str, arg: Any) -> None:
        stack = self.stack
        if name == "TUPLE":
            stack.append(tuple(self._since_mark()))
        elif name in ("SETITEM", "SETITEMS"):
            items = self._last(2) if name == "SETITEM" else self._since_mark()
            self._target(dict).update(zip(items[::2], items[1::2], strict=True))
        elif name in ("APPEND", "APPENDS"):
            items = self._last(1) if name == "APPEND" else self._since_mark()
            self._target(list).extend(items)
        elif name == "GLOBAL":
            stack.append(Named(arg.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            module, member = self._last(2)
            stack.append(Named(f"{module}.{member}"))
        elif name == "REDUCE":
            named, args = self._last(2)
            if type(named) is not Named or type(args) is not tuple:
                raise ValueError("a call of something that has no name")
            stack.append(Call(named.name, args))
        elif name == "BINPERSID":
            stack.append(Handle(stack.pop()))
        else:
            raise ValueError(f"the opcode {name}")

    def _last(self, count: int) -> list[Any]:
        if len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            raise ValueError("an empty stack")
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def _since_mark(self) -> list[Any]:
        mark = self.marks.pop()
        taken = self.stack[mark:]
        del self.stack[mark:]
        return taken

    def _target(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise ValueError(f"items of something that is no {kind.__name__}")
        return self.stack[-1]
