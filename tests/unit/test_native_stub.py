"""The stub `_ring/_native.pyi` has the extension's functions, classes, and arguments, with those that may be None.


The NumPy kernels and the protocols of `_ring/kernel_types.py` have the same arguments.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from back_ends import HAS_NATIVE

import relive
from relive._ring import kernel_types, kernels_numpy, plans

pytestmark = pytest.mark.skipif(not HAS_NATIVE, reason="there is no extension")
STUB = (Path(relive.__file__).parent / "_ring" / "_native.pyi").read_text()
# What the extension calls the stub's types. `Any` and `object | None` take anything.
TYPES = {
    "float": "float",
    "int": "int",
    "bool": "bool",
    "str": "str",
    "Float64": "numpy.ndarray[float64]",
    "Float32": "numpy.ndarray[float32]",
    "Int64": "numpy.ndarray[int64]",
    "Int32": "numpy.ndarray[int32]",
    "Bytes": "numpy.ndarray[uint8]",
    "Bool": "numpy.ndarray[bool]",
    "Array": "object",
    "Window": "object",
    "Lock": "relive._ring._native.Lock",
    "Ring": "relive._ring._native.Ring",
    "Tree": "relive._ring._native.Tree",
    "Any": "object",
}
DTYPES = {"Bool": "bool", "Float64": "float64", "Float32": "float32", "Int64": "int64"}
Signature = list[tuple[str, str, bool]]  # name, type, whether None is allowed


def arguments_of(function: ast.FunctionDef, spelled: Callable[[str], str]) -> Signature:
    signature = []
    for argument in function.args.args:
        text = ast.unparse(argument.annotation) if argument.annotation else ""
        optional = text == "Any" or "None" in text.split(" | ")
        signature.append((argument.arg, spelled(text.removesuffix(" | None")), optional))
    return signature


def in_the_stubs_words(text: str) -> str:
    outer = text.partition("[")[0]
    return {"list": "list", "dict": "dict", "Callable": "object"}.get(outer) or TYPES.get(text, text)


def functions_in(body: list[ast.stmt], prefix: str = "") -> dict[str, ast.FunctionDef]:
    found = {}
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            found |= functions_in(statement.body, f"{statement.name}.")
        elif isinstance(statement, ast.FunctionDef):
            found[prefix + statement.name] = statement
    return found


def said_by_the_stub(source: str) -> dict[str, Signature]:
    found = functions_in(ast.parse(source).body)
    return {name: arguments_of(function, in_the_stubs_words) for name, function in found.items()}


def said_by(module: Any) -> dict[str, Signature]:
    """The same of an extension, by the signatures that it carries."""
    carriers = {}
    for name, value in vars(module).items():
        if inspect.isclass(value) and value.__module__ == module.__name__:
            carriers |= {f"{name}.{inner}": getattr(value, inner) for inner in vars(value)}
        else:
            carriers[name] = value
    found = {}
    for name, carrier in carriers.items():
        if hasattr(carrier, "__nb_signature__"):
            ((text, *_),) = carrier.__nb_signature__
            (function,) = ast.parse(f"{text}: ...").body
            found[name] = arguments_of(function, str)  # type: ignore[arg-type]
    return found


def native() -> ModuleType:
    return importlib.import_module("relive._ring._native")


def test_the_stub_says_what_the_extension_has() -> None:
    assert said_by_the_stub(STUB) == said_by(native())


def test_attributes_are_there() -> None:
    classes = re.findall(r"^class (\w+):\n((?:    \w+: int\n)+)", STUB, re.MULTILINE)
    declared = [(kind, name) for kind, lines in classes for name in re.findall(r"(\w+): int", lines)]
    there = [
        (kind.__name__, name)
        for kind in vars(native()).values()
        if inspect.isclass(kind)
        for name, value in vars(kind).items()
        if isinstance(value, property)
    ]
    assert declared == there


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("slots: Int64, discounts", "places: Int64, discounts"),
        ("keep: Bool | None", "keep: Bool"),
        ("removed: Int64, added: Int64", "added: Int64, removed: Int64"),
        ("u: Float64", "u: Float32"),
        ("    def locate(self, ids: Int64) -> Located: ...\n", ""),
    ],
)
def test_meta_a_change_of_the_stub_is_noticed(before: str, after: str) -> None:
    assert before in STUB
    assert said_by_the_stub(STUB.replace(before, after)) != said_by(native())


def test_meta_a_change_of_the_extension_is_noticed() -> None:
    """The same module, but for one argument's name."""
    module = native()
    ((text, *rest),) = module.power.__nb_signature__
    renamed = SimpleNamespace(__nb_signature__=((text.replace("exponent", "power"), *rest),))
    changed = SimpleNamespace(**{**vars(module), "power": renamed})
    assert said_by(changed) != said_by(module)
    assert said_by_the_stub(STUB) != said_by(changed)


def test_the_numpy_kernels_have_the_same_arguments() -> None:
    for name, signature in said_by_the_stub(STUB).items():
        kind, _, method = name.rpartition(".")
        if method in ("__enter__", "__exit__"):
            continue  # the interpreter's own
        function = getattr(getattr(kernels_numpy, kind) if kind else kernels_numpy, method)
        assert list(inspect.signature(function).parameters) == [argument for argument, *_ in signature], name


def test_the_protocols_have_the_same_arguments() -> None:
    source = inspect.getsource(kernel_types)
    declared = functions_in(ast.parse(source).body)
    for name, function in functions_in(ast.parse(STUB).body).items():
        kind, _, method = name.rpartition(".")
        other = declared[f"Kernels.{kind or name}" if method == "__init__" or not kind else f"{kind}Kernel.{method}"]
        mine = [(a.arg, sequence(ast.unparse(a.annotation))) for a in function.args.args if a.annotation]
        theirs = [(a.arg, sequence(ast.unparse(a.annotation))) for a in other.args.args if a.annotation]
        assert [(n, t.replace("Kernel", "")) for n, t in theirs] == mine, name


def sequence(text: str) -> str:
    return re.sub(r"^Sequence\[", "list[", text)


def test_results_are_what_the_stub_says() -> None:
    """Plans are the very classes of `relive._ring.plans`; arrays have the dtype that is written there."""
    import border_calls

    makers = {name: make for calls in border_calls.makers().values() for name, make in calls.items()}
    for name, function in functions_in(ast.parse(STUB).body).items():
        if name.endswith(("__enter__", "__exit__")):
            continue
        call = makers[name]()
        result = call.function(**call.arguments)
        said = ast.unparse(function.returns).removesuffix(" | None") if function.returns else ""
        if name.endswith("__init__"):
            assert type(result) is getattr(native(), name.partition(".")[0]), name
        elif hasattr(plans, said) and said not in DTYPES and said != "Array":
            assert type(result) is getattr(plans, said), name
        elif said in DTYPES or said == "Array":
            assert isinstance(result, np.ndarray), name
            assert result.dtype == DTYPES.get(said, result.dtype), name
        else:
            assert type(result).__name__ == {"None": "NoneType", "Callable": "Add"}.get(
                said.partition("[")[0], said.partition("[")[0]
            ), name
