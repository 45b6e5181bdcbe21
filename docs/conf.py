"""Sphinx builds the site from the repository's own pages: the folder of sources is the repository.

So a link between pages, root files included, is the same on the site and on a code host. `docs/index.md` has the table
of contents; `docs/reference/` is made from docstrings. Nothing is fetched while building, or by a reader's browser.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.domains.python import PyObject
from sphinx.ext.autodoc.mock import _MockObject
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import relive  # noqa: E402

project = "relive"
author = copyright = "The relive authors"
version = release = relive.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "lab/README.md"]
exclude_patterns = ["**/.*", "**/_build", "benchmarks", "examples", "native", "src", "tests", "lab/src", "lab/tests"]
exclude_patterns += ["README.md", "docs/README.md"]  # code hosts show them; the site has docs/index.md
nitpicky = True
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"relive {release}"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_additional_pages = {"index": "redirect.html"}
html_css_files = ["custom.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_copy_source = html_show_sphinx = False
html_search_scorer = str(ROOT / "docs" / "_static" / "scorer.js")

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
# Libraries that adapters import, and no signature needs.
autodoc_mock_imports = ["h5py", "minari", "ray", "sensai", "stable_baselines3", "tensordict", "tianshou", "torchrl"]
del _MockObject.__new__  # it would stand for the signature of a class that inherits from a mocked one
default_role = "py:obj"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True
for fields in PyObject.doc_field_types:
    fields.label = "Attributes" if fields.name == "variable" else fields.label

# Python's names and other projects', whose pages are not asked for, and the aliases of `relive._base.types`.
nitpick_ignore_regex = [
    ("py:class", r"(collections|numpy|torch)\..+"),
    ("py:class", r"(Array|Bool|Bytes|Float32|Float64|Int32|Int64|UInt32|Nest|Tensor)"),
]

_typed: set[str] = set()


def complete(app: Any, obj: Any, bound_method: bool) -> None:
    """Run the imports that modules have for type checkers alone, so that annotations can be evaluated."""
    for name, module in [*sys.modules.items()]:
        file = Path(getattr(module, "__file__", None) or "")
        if name.partition(".")[0] == "relive" and name not in _typed and file.suffix == ".py":
            _typed.add(name)
            for node in ast.parse(file.read_text("utf-8")).body:
                if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                    with contextlib.suppress(ImportError):
                        exec(compile(ast.Module(node.body, []), str(file), "exec"), vars(module))


def find(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve a name as docstrings write it: with its arguments, or without its module.

    What stands between backticks in a docstring need not be a name, unless it begins with `relive.`; names in
    annotations exist, as mypy checks.
    """
    kind, name = node.get("reftype"), node["reftarget"].partition("(")[0]
    if node.get("refdomain") != "py" or kind not in ("obj", "class", "exc"):
        return None
    domain, last = env.domains.python_domain, name.rpartition(".")[2]
    if (name == last and last[:1].isupper()) or name.startswith("relive."):
        known = [full for full in domain.objects if full.endswith(f".{last}")]
        if known:
            full = name if name in known else min(known, key=len)
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, contnode)
    above = node
    while above is not None and not isinstance(above, addnodes.desc_signature):
        above = above.parent
    return contnode if above or (kind == "obj" and not name.startswith("relive.")) else None


def front(app: Any, name: str, source: list[str]) -> None:
    """On the site, `docs/index.md` stands for the README."""
    source[0] = re.sub(r"\]\((\.\./)*README\.md[^)]*", "](/docs/index.md", source[0])


def plain(app: Any, tree: Any) -> None:
    """Leave no link to a file that the site does not have, such as an example."""
    for link in [*tree.findall(addnodes.download_reference)]:
        link.replace_self(link.children)


class Help(SphinxDirective):
    """What a command prints when it is asked for help."""

    required_arguments, final_argument_whitespace = 1, True

    def run(self) -> list[nodes.Node]:
        settings = os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")}
        command = [sys.executable, "-m", *self.arguments[0].split(), "--help"]
        said = subprocess.run(command, env=settings, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        text = "\n".join(textwrap.fill(line, 80) if len(line) > 80 else line for line in said.strip().splitlines())
        return [nodes.literal_block(text, text, language="text")]


def setup(app: Any) -> None:
    app.add_directive("help", Help)
    app.connect("autodoc-before-process-signature", complete)
    app.connect("source-read", front)
    app.connect("doctree-read", plain)
    app.connect("missing-reference", find)
