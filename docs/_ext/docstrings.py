"""Names and types of docstrings, as this repository writes them."""

from __future__ import annotations

import ast
import operator
import sys
from pathlib import Path
from typing import Any, NamedTuple

from sphinx import addnodes
from sphinx.domains.python import PyObject, PyXRefRole
from sphinx.ext.autodoc.mock import _MockObject
from sphinx.ext.napoleon import GoogleDocstring

_FIELD = type(NamedTuple("Pair", [("first", int)]).first)  # of a named tuple
_complete: set[str] = set()


def complete(app: Any, obj: Any, bound_method: bool) -> None:
    """Run the imports that modules have for type checkers alone, so that annotations can be evaluated."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "relive" and name not in _complete]:
        module, done = sys.modules[name], True
        file = Path(getattr(module, "__file__", None) or "")
        if file.suffix == ".py":
            for node in ast.parse(file.read_text("utf-8")).body:
                if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                    for line in node.body:
                        try:
                            exec(compile(ast.Module([line], []), str(file), "exec"), vars(module))
                        except (ImportError, NameError):  # a library is not installed, or a module not complete yet
                            done = False
        if done:
            _complete.add(name)


def skip(app: Any, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out the fields of a tuple, which its docstring describes."""
    getter = getattr(obj, "fget", obj)
    return True if type(getter) in (operator.itemgetter, _FIELD) else None


def sign(app: Any, what: str, name: str, obj: Any, options: Any, signature: str, returns: str) -> Any:
    """Write a tuple's signature with its fields, in order, and a protocol's without a call."""
    if what != "class":
        return None
    if getattr(obj, "_is_protocol", False):
        return "", returns
    fields = getattr(obj, "_fields", None)
    return (f"({', '.join(fields)})", returns) if issubclass(obj, tuple) and fields else None


class Code(PyXRefRole):
    """Text between backticks: shown as it is, a dot at its beginning included."""

    def process_link(self, env: Any, refnode: Any, has_explicit_title: bool, title: str, target: str) -> Any:
        """Return the text, and the name to look for."""
        super().process_link(env, refnode, has_explicit_title, title, target)
        return title, target


def whole(docstring: Any) -> list[str]:
    """Read the docstring of a property like others: what stands before a colon is no type."""
    docstring._what = "method"
    docstring._parse()
    return []


def find(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve a name with its arguments, as in `Ram()`, or without its module.

    What stands between backticks in a docstring need not be a name, unless it begins with `relive.`. Names in
    annotations exist, as mypy checks.
    """
    kind, name = node.get("reftype"), node["reftarget"].partition("(")[0]
    if node.get("refdomain") != "py" or kind not in ("obj", "class", "exc"):
        return None
    domain, last = env.domains.python_domain, name.rpartition(".")[2]
    if (name.startswith("relive.") and not node.get("page")) or (name == last and last[:1].isupper()):
        known = [full for full in domain.objects if full.endswith(f".{last}")]
        if known:
            full = name if name in known else min(known, key=len)
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, contnode)
    above = node
    while above is not None and not isinstance(above, addnodes.desc_signature):
        above = above.parent
    code = kind == "obj" and (node.get("page") or not name.startswith("relive."))
    return contnode if above or code else None


def setup(app: Any) -> dict[str, bool]:
    """Connect what is above."""
    del _MockObject.__new__  # it would stand for the signature of a class that inherits from a mocked one
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.add_role_to_domain("py", "obj", Code(), override=True)
    GoogleDocstring._parse_attribute_docstring = whole
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-signature", sign)
    app.connect("autodoc-before-process-signature", complete)
    app.connect("missing-reference", find)
    return {"parallel_read_safe": True}
