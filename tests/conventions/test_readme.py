"""The README's first screen: short, with commands that exist, and pictures that the script draws."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

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


def test_one_script_makes_a_release_of_the_pages(tmp_path: Path) -> None:
    """Check that no address of a placeholder, no relative link of the README and no install from a clone is left."""
    pages = ["README.md", *(f"docs/{name}.md" for name in ("index", "start", "stable-baselines3"))]
    files = [
        *pages,
        "pyproject.toml",
        *(f".github/release/{path.name}" for path in (ROOT / ".github/release").iterdir()),
    ]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    script, home = tmp_path / ".github/release/address.sh", "https://code.example/somebody/relive"
    subprocess.run(["sh", script, home], check=True)
    texts = {name: (tmp_path / name).read_text("utf-8") for name in files if not name.endswith(".sh")}
    for name, text in texts.items():
        assert "example.org" not in text
        assert name not in pages or ("'.[" not in text.partition("## Tests")[0] and "package index yet" not in text)
    links = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)", texts["README.md"])
    assert len(links) > 20
    assert all(link.startswith(("https://", "#")) for pair in links for link in pair if link)
    assert f'Changelog = "{home}/blob/main/CHANGELOG.md"' in texts["pyproject.toml"]
