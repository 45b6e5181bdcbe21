"""Fenced code blocks and inline code of Markdown files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from source_tree import ROOT

_GLOBS = ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "lab/*.md", "src/**/*.md")
PAGES = sorted(path for pattern in _GLOBS for path in ROOT.glob(pattern))

_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>[\w.-]+) -->\n+)?^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_INLINE = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """One fenced block; `mark` is the word of the HTML comment before it, such as `no-run`."""

    language: str
    code: str
    mark: str
    line: int


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [
        Block(found["language"], found["code"], found["mark"] or "", text[: found.start("code")].count("\n") + 1)
        for found in _FENCE.finditer(text)
    ]


def shell_text(text: str) -> list[str]:
    """Return every text that may name a command: lines of blocks that are not Python, and inline code."""
    lines = [
        line
        for block in blocks(text)
        if block.language != "python"
        for line in block.code.replace("\\\n", " ").splitlines()
    ]
    return lines + _INLINE.findall(_FENCE.sub("", text))


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")
