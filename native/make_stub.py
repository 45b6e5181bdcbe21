"""Writes `src/relive/_ring/_native.pyi`, by the signatures that the built extension carries.

    python native/make_stub.py

Of arguments and results the extension knows names, order, plain types and the dtypes of arrays. What it has as `object`
or `list` gets the type that the protocols of `_ring/kernel_types.py` have for it.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

RING = Path(__file__).parents[1] / "src" / "relive" / "_ring"
HEAD = '"""Types of the extension; `relive._ring.kernels_numpy` has the same functions and describes them."""\n'
WIDTH = 120
ARRAYS = {
    "float64": "Float64",
    "float32": "Float32",
    "int64": "Int64",
    "int32": "Int32",
    "uint8": "Bytes",
    "bool": "Bool",
}


def stub(module: Any, protocols: str) -> str:
    """Write the text of the stub.

    Args:
        module: The extension.
        protocols: The source of `_ring/kernel_types.py`.

    Raises:
        LookupError: The protocols lack a function, or the type of an argument.
    """
    source = ast.parse(protocols)
    known = {
        f"{kind.name}.{function.name}": function
        for kind in source.body
        if isinstance(kind, ast.ClassDef)
        for function in kind.body
        if isinstance(function, ast.FunctionDef)
    }
    functions, classes = [], []
    for name, value in vars(module).items():
        if inspect.isclass(value) and value.__module__ == module.__name__:
            members = vars(value).items()
            attributes = [f"    {key}: {_result(each)}\n" for key, each in members if type(each) is property]
            methods = [
                _function(each, known[f"Kernels.{name}" if key == "__init__" else f"{name}Kernel.{key}"], "    ")
                for key, each in members
                if hasattr(each, "__nb_signature__")
            ]
            body = "".join(["\n", *attributes, *methods]) if attributes or methods else " ...\n"
            classes.append(f"\nclass {name}:{body}")
        elif hasattr(value, "__nb_signature__"):
            functions.append(_function(value, known[f"Kernels.{name}"]))
    body = "".join(functions + classes)
    return f"{HEAD}\n{_imports(source, body)}\n{body}"


def _function(carrier: Any, typed: ast.FunctionDef, indent: str = "") -> str:
    """Write the line of a function, whose further types are those of `typed`."""
    ((text, *_),) = carrier.__nb_signature__
    (function,) = ast.parse(f"{text}: ...").body
    assert isinstance(function, ast.FunctionDef)
    types = {each.arg: each.annotation for each in typed.args.args}
    arguments = []
    for argument in function.args.args:
        if argument.annotation is None:
            arguments.append(argument.arg)
            continue
        plain, _, optional = ast.unparse(argument.annotation).partition(" | ")
        kind = _spelled(plain, types, argument.arg).removesuffix(" | None")
        arguments.append(f"{argument.arg}: {kind}" + " | None" * (optional == "None" and kind != "Any"))
    returned = ast.unparse(function.returns) if function.returns else "None"
    result = _spelled(returned, {"return": typed.returns}, "return")
    static = f"{indent}@staticmethod\n" if indent and "self" not in arguments else ""
    return static + _wrapped(f"{indent}def {function.name}(", arguments, f") -> {result}: ...\n", indent)


def _result(attribute: property) -> str:
    carrier: Any = attribute.fget
    return str(carrier.__nb_signature__[0][0].rpartition(" -> ")[2])


def _spelled(plain: str, types: dict[str, ast.expr | None], name: str) -> str:
    """Write a type as the stub has it."""
    if plain in ("object", "list"):
        if (kind := types.get(name)) is None:
            raise LookupError(f"`kernel_types.py` has no type of `{name}`")
        return re.sub(r"Kernel\b", "", ast.unparse(kind)).replace("Sequence[", "list[")
    array = re.fullmatch(r"numpy\.ndarray\[(\w+)\]", plain)
    return ARRAYS[array[1]] if array else plain.rpartition(".")[2]


def _imports(source: ast.Module, body: str) -> str:
    """List those of the protocols' imports that the stub needs."""
    lines = []
    for statement in source.body:
        if isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
            names = [each.name for each in statement.names if re.search(rf"\b{each.name}\b", body)]
            start = f"from {'.' * statement.level}{statement.module} import "
            line = start + ", ".join(names) + "\n"
            if len(line) > WIDTH:
                line = f"{start}(\n" + "".join(f"    {name},\n" for name in names) + ")\n"
            lines.append(("\n" if statement.level == 2 else "") + line)
    return "".join(lines)


def _wrapped(start: str, arguments: list[str], end: str, indent: str) -> str:
    """Wrap a function as `ruff format` lays it out."""
    joined = ", ".join(arguments)
    if len(start + joined + end) - 1 <= WIDTH:
        return start + joined + end
    inner = f"{indent}    "
    if len(inner + joined) <= WIDTH:
        return f"{start}\n{inner}{joined}\n{indent}{end}"
    return "\n".join([start, *(f"{inner}{each}," for each in arguments), indent + end])


if __name__ == "__main__":
    made = stub(importlib.import_module("relive._ring._native"), (RING / "kernel_types.py").read_text())
    (RING / "_native.pyi").write_text(made)
