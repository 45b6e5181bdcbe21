"""Parse a pickle as data: nothing that it names is imported, and no function is called."""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

MOST_STEPS = 100_000


class Named(NamedTuple):
    """A global that the pickle names, such as `torch.FloatStorage`."""

    name: str


class Call(NamedTuple):
    """A call that the pickle asks for."""

    name: str
    args: tuple[Any, ...]


class Handle(NamedTuple):
    """A persistent id: a reference to data outside the pickle."""

    value: Any


class Span(NamedTuple):
    """A bytes object in the pickle: offset and size."""

    start: int
    size: int


_SCALARS = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_BYTES = {
    "SHORT_BINBYTES": 2,
    "BINBYTES": 5,
    "BINBYTES8": 9,
}  # bytes of the opcode and its count
_PUT, _GET = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}


def value(file: BinaryIO) -> Any:
    """Parse the pickle at the file's position, and move the position to its end.

    Dictionaries, lists, tuples, strings and numbers are returned as such; anything else as one of the classes above.

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
        raise ValueError(f"invalid pickle: {error!r}"[:80]) from None
    return found


class _Machine:
    """The pickle machine: a stack, marks on it, and the memo."""

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
            target = self._target(dict)
            # A tuple that has one tuple twice, and so on, takes few bytes, but a hash or a text without an end.
            if not all(type(key) is str for key in items[::2]):
                raise ValueError("invalid pickle: invalid field name, not a string")
            target.update(zip(items[::2], items[1::2], strict=True))
        elif name in ("APPEND", "APPENDS"):
            items = self._last(1) if name == "APPEND" else self._since_mark()
            self._target(list).extend(items)
        elif name == "GLOBAL":
            stack.append(Named(arg.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            module, member = self._last(2)
            if type(module) is not str or type(member) is not str:
                raise ValueError("a global whose name is no string")
            stack.append(Named(f"{module}.{member}"))
        elif name == "REDUCE":
            named, args = self._last(2)
            if type(named) is not Named or type(args) is not tuple:
                raise ValueError("a call of something other than a global")
            stack.append(Call(named.name, args))
        elif name == "BINPERSID":
            stack.append(Handle(stack.pop()))
        else:
            raise ValueError(f"forbidden opcode {name}")

    def _last(self, count: int) -> list[Any]:
        if len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            raise ValueError("empty stack")
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
            raise ValueError(f"items for something other than a {kind.__name__}")
        return self.stack[-1]
