"""A pickle's opcodes, looked at before anything reads it: those that a tree of tensors needs, and no more of each."""

from __future__ import annotations

import pickletools
from typing import BinaryIO

_MOST = 100_000
STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip
_DTYPES = (
    "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "float8_e8m0fnu",
)  # fmt: skip
GLOBALS = {
    "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3", "torch.storage.UntypedStorage",
    "collections.OrderedDict", *(f"torch.{name}" for name in (*STORAGES, *STORAGES.values(), *_DTYPES)),
}  # fmt: skip
"""What a file may name. PyTorch allows more; some of that takes any amount of memory."""
_PLAIN = {"BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "GLOBAL"}
_TUPLES = {"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
_OTHERS = {
    "PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "SETITEM",
    "SETITEMS", "APPEND", "APPENDS", "REDUCE",
}  # fmt: skip
_PUTS, _GETS = {"BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"BINGET", "LONG_BINGET"}
# Those of later protocols, in `pkl` files.
_LATER_PLAIN = {"SHORT_BINUNICODE", "BINUNICODE8", "STACK_GLOBAL"}
_LATER = _LATER_PLAIN | {"FRAME", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"}
_ALWAYS = _PLAIN | _TUPLES | _OTHERS | _PUTS | _GETS
_ALLOWED = {False: (_ALWAYS | {"BINPERSID"}) - {"MEMOIZE"}, True: _ALWAYS | _LATER}
# A tuple that has one tuple twice, which has one twice, takes few bytes, but a hash or a text without an end. Numbers
# of many digits can all have the same hash.
_FEW = {"GET": 32, "TUPLE": 8192, "LONG1": 1024}


def scan(file: BinaryIO, *, later: bool = False) -> None:
    """Check the pickle at the file's position, and move the position to its end.

    Args:
        file: The file.
        later: Whether it may be of a protocol above 2, where names are strings on the stack, which this cannot check,
            and is whole: without references to something outside.

    Raises:
        ValueError: It has other opcodes, names something else, or has too many of one kind.
    """
    left, plain, last = dict(_FEW), dict[int, bool](), ""
    for count, (opcode, arg, _) in enumerate(pickletools.genops(file)):
        name = opcode.name
        if count == _MOST or name not in _ALLOWED[later]:
            raise ValueError(f"forbidden opcode {name}, or more than {_MOST}")
        if name == "PROTO" and arg != 2 and not later:
            raise ValueError(f"a pickle of protocol {arg}")
        if name == "GLOBAL" and str(arg).replace(" ", ".") not in GLOBALS and not later:
            raise ValueError(f"unknown name {arg}"[:80])
        if name in _PUTS:
            number = len(plain) if arg is None else arg
            if number > _MOST:
                raise ValueError(f"a memo of {number}")
            plain[number] = last in _PLAIN or last in _LATER_PLAIN
            continue
        kind = "TUPLE" if name in _TUPLES else "GET" if name in _GETS and not plain.get(int(arg or 0)) else name
        if kind in left:
            left[kind] -= 1
            if left[kind] < 0:
                raise ValueError(f"too many opcodes {name}")
        last = name
