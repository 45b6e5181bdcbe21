"""Pages that a code host shows, too: links to files that the site lacks, words to search for, texts of commands."""

from __future__ import annotations

import contextlib
import io
import os
import re
import textwrap
from html import escape
from typing import Any
from unittest import mock

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

import relive.cli

# Words that readers search for, by the page that answers them; they are in the index, too.
KEYWORDS = {
    "docs/choices": [
        "hindsight",
        "HER",
        "NaN",
        "PER",
        "prioritized",
        "priority",
        "seed",
        "action chunk",
        "importance sampling",
    ],
    "docs/boundaries": ["autoreset", "n-step", "truncated", "terminated", "done", "time limit", "episode", "reset"],
    "docs/cluster": ["Ray"],
    "docs/doctor": ["bug", "debug", "check"],
    "docs/dreamer": ["DreamerV3"],
    "docs/gpu": ["GPU", "CUDA", "Isaac Lab"],
    "docs/lerobot": ["LeRobot"],
    "docs/prefetch": ["background thread", "replay ratio", "limiter", "async"],
    "docs/processes": ["shared memory", "multiprocessing", "actor", "learner"],
    "docs/recipes": ["DataLoader", "Graph", "TensorBoard", "logging"],
    "docs/saving": ["crash", "save", "checkpoint", "resume", "load", "compress", "pickle", "disk", "kill"],
    "docs/sequences": ["frame stack", "R2D2", "Atari", "LSTM", "GRU", "RNN", "recurrent", "burn-in"],
    "docs/stable-baselines3": ["Stable-Baselines3", "SB3"],
    "docs/start": ["install", "notebook", "vector environment"],
    "docs/switch": ["CleanRL", "labml", "rlpyt", "Tianshou", "cpprb", "TorchRL"],
    "docs/trajectories": ["Minari", "offline", "D4RL"],
}


_PICTURE = re.compile(r'<picture><source [^>]*srcset="([^"]+)"><img alt="([^"]*)" src="([^"]+)"></picture>')


def front(app: Any, name: str, source: list[str]) -> None:
    """Replace links to the README, whose page on the site is docs/index.md, and pictures for both schemes."""
    source[0] = _PICTURE.sub(_both, source[0])
    source[0] = re.sub(r"\]\((\.\./)*README\.md[^)]*", "](/docs/index.md", source[0])


def _both(found: re.Match[str]) -> str:
    """Compose two images, of which the theme shows one: it may be switched, unlike the system's scheme."""
    shown = (("only-light", found[3]), ("only-dark", found[1]))
    images = (f"```{{image}} {name}\n:class: {kind}\n:alt: {found[2]}\n```" for kind, name in shown)
    return "\n".join(images)


def describe(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Give each page a description, and what a shared link shows."""
    if doctree is None:
        return
    first = next((p.astext() for p in doctree.findall(nodes.paragraph) if len(p.astext()) > 30), "")
    words = textwrap.shorten(" ".join(first.split()), 200, placeholder=" ...")
    facts = {"title": context.get("title", ""), "description": words, "type": "website", "site_name": "relive"}
    tags = [f'<meta name="description" content="{escape(words)}">']
    tags += [f'<meta property="og:{name}" content="{escape(text)}">' for name, text in facts.items()]
    context["metatags"] = context.get("metatags", "") + "\n".join(tags)


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
    app.connect("html-page-context", describe)
    app.connect("doctree-read", read, priority=400)  # before files to download are collected
    return {"parallel_read_safe": True}
