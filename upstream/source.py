"""Classes and functions out of the source that a test is about, whose modules import far more than they need."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SOURCE = Path(os.environ["UPSTREAM_SOURCE"])


def names_of(file: str, *names: str, **given: Any) -> SimpleNamespace:
    """Run the definitions of these names, and no more of the file; `given` is what they refer to."""
    body = ast.parse((SOURCE / file).read_text("utf-8")).body
    wanted = [node for node in body if getattr(node, "name", None) in names or _assigns(node, names)]
    for node in wanted:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            node.decorator_list = []
    annotations = ast.parse("from __future__ import annotations").body
    exec(compile(ast.Module([*annotations, *wanted], []), file, "exec"), given)
    return SimpleNamespace(**{name: given[name] for name in names})


def method_of(file: str, kind: str, name: str, **given: Any) -> Any:
    """Return a method of a class as a function."""
    body = ast.parse((SOURCE / file).read_text("utf-8")).body
    found = next(node for node in body if getattr(node, "name", None) == kind)
    method = next(node for node in found.body if getattr(node, "name", None) == name)  # type: ignore[attr-defined]
    annotations = ast.parse("from __future__ import annotations").body
    exec(compile(ast.Module([*annotations, method], []), file, "exec"), given)
    return given[name]


def _assigns(node: ast.stmt, names: tuple[str, ...]) -> bool:
    return isinstance(node, ast.Assign) and any(getattr(target, "id", None) in names for target in node.targets)
