"""Pages that a code host shows, too: links to files that the site lacks, words to search for, texts of commands."""

from __future__ import annotations

import contextlib
import io
import os
import re
import textwrap
from typing import Any
from unittest import mock

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

import relive.cli

# Words that readers search for, by the page that answers them; they are in the index, too.
KEYWORDS = {
    "docs/choices": ["hindsight", "NaN", "PER", "priority", "seed"],
    "docs/boundaries": ["autoreset", "n-step", "truncated"],
    "docs/cluster": ["Ray"],
    "docs/dreamer": ["DreamerV3"],
    "docs/gpu": ["GPU", "Isaac Lab"],
    "docs/lerobot": ["LeRobot"],
    "docs/processes": ["shared memory"],
    "docs/recipes": ["DataLoader", "Graph"],
    "docs/saving": ["crash", "save"],
    "docs/sequences": ["frame stack", "R2D2"],
    "docs/stable-baselines3": ["Stable-Baselines3"],
    "docs/switch": ["CleanRL"],
    "docs/trajectories": ["Minari"],
}


def front(app: Any, name: str, source: list[str]) -> None:
    """Replace links to the README, whose page on the site is docs/index.md."""
    source[0] = re.sub(r"\]\((\.\./)*README\.md[^)]*", "](/docs/index.md", source[0])


def read(app: Any, tree: Any) -> None:
    """Link the names of the reference, no file that the site lacks, such as an example, and enter the words."""
    for code in [*tree.findall(nodes.literal)]:
        name = re.fullmatch(r"(relive(?:\.\w+)+)(?:\(.*\))?", code.astext())
        if name and not isinstance(code.parent, nodes.title | nodes.reference | addnodes.pending_xref):
            target = {"refdomain": "py", "reftype": "obj", "reftarget": name[1], "refdoc": app.env.docname}
            code.replace_self(addnodes.pending_xref("", code.deepcopy(), **target, refwarn=False, page=True))
    for link in [*tree.findall(addnodes.download_reference)]:
        link.replace_self(link.children)
    words = KEYWORDS.get(app.env.docname, [])
    if words:
        title = next(tree.findall(nodes.section))["ids"][0]
        tree.insert(0, addnodes.index(entries=[("single", word, title, "main", None) for word in words]))


class Help(SphinxDirective):
    """The help text of a command."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the text, 80 columns wide."""
        _, *words = self.arguments[0].split()
        settings = mock.patch.dict(os.environ, COLUMNS="80", NO_COLOR="1")
        with settings, contextlib.redirect_stdout(io.StringIO()) as page, contextlib.suppress(SystemExit):
            relive.cli.main([*words, "--help"])
        lines = (line.rstrip() for line in page.getvalue().strip().splitlines())
        text = "\n".join(textwrap.fill(line, 80) if len(line) > 80 else line for line in lines)
        return [nodes.literal_block(text, text, language="text")]


def setup(app: Any) -> dict[str, bool]:
    """Connect what is above."""
    app.add_directive("help", Help)
    app.connect("source-read", front)
    app.connect("doctree-read", read, priority=400)  # before files to download are collected
    return {"parallel_read_safe": True}
