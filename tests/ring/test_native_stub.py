"""The stub `_ring/_native.pyi` is what `native/make_stub.py` makes of the extension.

The NumPy kernels and the protocols of `_ring/kernel_types.py` have the same arguments.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import runpy
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from back_ends import HAS_NATIVE

import relive
from relive._ring import kernel_types, kernels_numpy, plans

pytestmark = pytest.mark.skipif(not HAS_NATIVE, reason="there is no extension")
STUB = (Path(relive.__file__).parent / "_ring" / "_native.pyi").read_text()
PROTOCOLS = inspect.getsource(kernel_types)
DTYPES = {"Bool": "bool", "Float64": "float64", "Float32": "float32", "Int64": "int64"}
stub = runpy.run_path(str(Path(__file__).parents[2] / "native" / "make_stub.py"))["stub"]


def functions_in(body: list[ast.stmt], prefix: str = "") -> dict[str, ast.FunctionDef]:
    found = {}
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            found |= functions_in(statement.body, f"{statement.name}.")
        elif isinstance(statement, ast.FunctionDef):
            found[prefix + statement.name] = statement
    return found


def native() -> ModuleType:
    return importlib.import_module("relive._ring._native")


def test_the_stub_is_what_the_extension_says() -> None:
    assert stub(native(), PROTOCOLS) == STUB, "run `python native/make_stub.py`"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("power", "exponent", "power"),
        ("power", "ndarray[float64]", "ndarray[float32]"),
        ("smallest", "-> float", "-> int"),
        ("ending", "begun: bool", "begun: bool | None"),
        ("mass", "eps: float, alpha: float", "alpha: float, eps: float"),
    ],
)
def test_meta_a_change_of_the_extension_is_noticed(name: str, before: str, after: str) -> None:
    """Check the same module, except for one signature."""
    module = native()
    ((text, *rest),) = getattr(module, name).__nb_signature__
    assert before in text
    changed = SimpleNamespace(__nb_signature__=((text.replace(before, after), *rest),))
    made = stub(SimpleNamespace(**{**vars(module), name: changed}), PROTOCOLS)
    assert len(set(made.splitlines()) ^ set(STUB.splitlines())) == 2


def test_meta_a_function_that_is_gone_is_noticed() -> None:
    left = {name: value for name, value in vars(native()).items() if name != "away"}
    assert stub(SimpleNamespace(**left), PROTOCOLS) == STUB.replace("def away() -> int: ...\n", "")


def test_meta_a_result_that_no_protocol_describes_is_refused() -> None:
    with pytest.raises(LookupError, match=r"Kernels\.away"):
        stub(native(), PROTOCOLS.replace("def away", "def gone"))
    with pytest.raises(LookupError, match="no type of `places`"):
        stub(native(), PROTOCOLS.replace("places: Array, firsts", "slots: Array, firsts"))


def test_the_numpy_kernels_have_the_same_arguments() -> None:
    for name, said in functions_in(ast.parse(STUB).body).items():
        kind, _, method = name.rpartition(".")
        if method in ("__enter__", "__exit__") or kind == "Expansion":
            continue  # the interpreter's own, and a part that NumPy's kernels lack
        function = getattr(getattr(kernels_numpy, kind) if kind else kernels_numpy, method)
        assert list(inspect.signature(function).parameters) == [each.arg for each in said.args.args], name


def test_the_protocols_have_the_same_arguments() -> None:
    declared = functions_in(ast.parse(PROTOCOLS).body)
    for name, function in functions_in(ast.parse(STUB).body).items():
        kind, _, method = name.rpartition(".")
        other = declared[f"Kernels.{kind or name}" if method == "__init__" or not kind else f"{kind}Kernel.{method}"]
        mine = [(a.arg, sequence(ast.unparse(a.annotation))) for a in function.args.args if a.annotation]
        theirs = [(a.arg, sequence(ast.unparse(a.annotation))) for a in other.args.args if a.annotation]
        assert [(n, t.replace("Kernel", "")) for n, t in theirs] == mine, name


def sequence(text: str) -> str:
    return re.sub(r"^Sequence\[", "list[", text)


def test_results_are_what_the_stub_says() -> None:
    """Check that plans are the very classes of `relive._ring.plans`; arrays have the written dtypes."""
    import border_calls

    makers = border_calls.makers()
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
            assert type(result).__name__ == {"None": "NoneType", "Callable": "Call"}.get(
                said.partition("[")[0], said.partition("[")[0]
            ), name
