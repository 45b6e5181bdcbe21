"""The README's first screen: short, with commands that exist, and pictures that the script draws."""

from __future__ import annotations

import re
import sys
import tomllib

import pytest
from markdown_pages import blocks, read
from source_tree import ROOT

README = ROOT / "README.md"


def test_the_readme_is_short() -> None:
    text = re.sub(r"```.*?```|<[^>]*>|^\[\w\]: .*$", "", read(README), flags=re.DOTALL | re.MULTILINE)
    words = re.findall(r"[A-Za-z0-9][\w'.-]*", re.sub(r"\]\([^)]*\)|\]\[\w\]", "]", text))
    assert len(words) <= 600
    assert max(len(line) for block in blocks(read(README)) if not block.mark for line in block.code.splitlines()) <= 108


def test_its_commands_install_what_is_there() -> None:
    marked = {block.mark: block.code.strip() for block in blocks(read(README)) if block.mark}
    assert set(marked) == {"install", "test", "run"}
    assert all("\n" not in command for command in marked.values()), "`.ci/run` reads one line"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for wanted in re.findall(r"'\.\[([\w,-]+)\]'", " ".join(marked.values())):
        assert set(wanted.split(",")) <= set(extras)
    assert re.search(r"pytest -q", marked["test"])
    assert re.search(r"relive-lab compare pairs", marked["run"])


def test_each_tick_of_the_comparison_has_a_link() -> None:
    text = read(README)
    rows = [line for line in text.splitlines() if line.startswith("|") and "✓" in line]
    assert len(rows) > 5
    for row in rows:
        assert row.count("✓") == len(re.findall(r"\[✓\](?:\([^)]+\)|\[\w\])", row))
    for mark in set(re.findall(r"\[✓\]\[(\w)\]", text)):
        assert re.search(rf"^\[{mark}\]: https://", text, re.MULTILINE)


def test_each_picture_is_the_one_that_the_script_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "docs" / "_ext"), *sys.path])
    import pictures

    drawn = pictures.pictures()
    remedy = "python docs/_ext/pictures.py"
    for name, text in drawn.items():
        assert (ROOT / "docs" / "images" / name).read_text("utf-8") == text, remedy
    for page in (README, *sorted((ROOT / "docs").glob("*.md"))):
        for light, dark in re.findall(r'srcset="([^"]+)-dark\.svg"><img [^>]*src="([^"]+)\.svg"', read(page)):
            assert light == dark
            assert f"{light.rpartition('/')[2]}-dark.svg" in drawn
