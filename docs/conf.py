"""Sphinx builds the site from the repository's own pages: the folder of sources is the repository.

So a link between pages, root files included, is the same on the site and on a code host. `docs/index.md` has the table
of contents; `docs/reference/` is made from docstrings, `_ext/` reads both. Nothing is fetched while building, or by a
reader's browser.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs" / "_ext")]

import relive  # noqa: E402

project = "relive"
author = copyright = "The relive authors"
version = release = relive.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docstrings", "pages"]
extensions += ["boundary_explorer", "playground"]

root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "lab/README.md", "src/relive/*/README.md"]
exclude_patterns = ["**/.*", "**/_build", "benchmarks", "examples", "native", "tests", "lab/src", "lab/tests"]
exclude_patterns += ["README.md", "docs/README.md"]  # code hosts show them; the site has docs/index.md
nitpicky = True
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"relive {release}"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_css_files = ["custom.css"]
html_js_files = [(name, {"defer": "defer"}) for name in ("versions.js", "page.js", "search.js")]
html_search_scorer = str(ROOT / "docs" / "_static" / "scorer.js")
html_copy_source = html_show_sphinx = False
templates_path = ["_templates"]
html_additional_pages = {"index": "redirect.html"}

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints_format = "short"
# Libraries that adapters import, and no signature needs.
autodoc_mock_imports = ["h5py", "minari", "ray", "sensai", "stable_baselines3", "tensordict", "tianshou", "torchrl"]
default_role = "py:obj"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
# Types of attributes: Python's and other projects', and the aliases that reference/index.md explains.
nitpick_ignore_regex = [
    ("py:class", r"(collections|numpy|torch)\..+"),
    ("py:class", r"relive\.trajectories\.formats\.(Checkpoints|Examined)"),  # relive's own layout and RLinf's
    ("py:class", r"relive\._disk\.files\.Folder"),  # that these two open
    ("py:class", r"Array|Bool|Bytes|Float32|Float64|Int32|Int64|UInt32|Nest|Tensor"),
]
