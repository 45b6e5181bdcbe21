"""What the pages say is so: their code runs, their links lead somewhere, their examples exist."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import os
import re
import runpy
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest
from depth import LONG
from markdown_pages import PAGES, Block, blocks, read
from needs import needs
from source_tree import ROOT, SOURCE

# Every example, and the arguments that make it short.
# None: tests/ray runs it, on its cluster.
EXAMPLES: dict[str, list[str] | None] = {
    "behaviour_cloning.py": ["--updates", "5", "--episodes", "3"],
    "bit_flipping.py": ["--bits", "4", "--steps", "400"],
    "cleanrl_dqn.py": ["--steps", "1100"],
    "cleanrl_sac.py": ["--steps", "520"],
    "clone_from_trajectories.py": ["--updates", "50", "--rollouts", "2"],
    "ray_dqn.py": None,
    "ray_sizes.py": [],
    "ray_trajectories.py": None,
    "reaching_sb3.py": ["--steps", "60"],
    "own_item.py": [],
    "own_sampler.py": [],
    "ranked_sampler.py": [],
    "tic_tac_toe.py": ["--games", "20"],
    "write_back.py": [],
}
# Pages and examples whose code needs a library that may not be there.
NEEDED = {
    "behaviour_cloning.py": "torch",
    "lerobot.md": "torch",
    "recipes.md": "torch",
    "robots.md": "pyarrow",
    "reaching_sb3.py": "stable_baselines3",
    "stable-baselines3.md": "stable_baselines3",
}
# Other tests cover what these do, and they take seconds.
LONGER = {"reaching_sb3.py"}
INSIDE = [ROOT / "ARCHITECTURE.md", *sorted(SOURCE.glob("*/README.md"))]
WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks(read(page)))]


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def installed(mark: str) -> bool:
    """Return True if the module that a block is marked to need, as in `needs-torchrl`, can be imported."""
    with contextlib.suppress(ImportError):
        return not mark.startswith("needs-") or bool(importlib.import_module(mark.removeprefix("needs-")))
    return False


def run_blocks(name: str, found: list[Block]) -> list[str]:
    """Run a page's Python blocks in order in one namespace; return what went wrong in those with `>>>`."""
    scope: dict[str, object] = {"__name__": "__main__"}
    faults: list[str] = []
    for block in found:
        if block.language != "python" or block.mark == "no-run" or not installed(block.mark):
            continue
        if block.code.lstrip().startswith(">>>"):
            test = doctest.DocTestParser().get_doctest(block.code, scope, name, name, block.line - 1)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(test, out=faults.append, clear_globs=False)
            scope.update(test.globs)
        else:
            # Blank lines in front give tracebacks the page's own line numbers.
            exec(compile("\n" * (block.line - 1) + block.code, name, "exec"), scope)
    return faults


def spared(paths: list[Path]) -> list[Any]:
    """Return the paths; those that take long run in the long mode."""
    return [pytest.param(path, marks=pytest.mark.slow) if path.name in LONGER else path for path in paths]


@pytest.mark.parametrize("page", spared(WITH_CODE), ids=names(WITH_CODE))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in NEEDED:
        needs(NEEDED[page.name])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    found = blocks(read(page))
    faults = run_blocks(str(page), found)
    assert not faults, "\n".join(faults)
    if missing := {block.mark for block in found if not installed(block.mark)}:
        pytest.skip(f"all blocks ran but those of {missing}: pip install '.[test-all]'")


def ran(path: Path, arguments: list[str], folder: Path) -> tuple[int, str]:
    """Run an example in a process of its own, which need not import PyTorch again; return its status and errors."""
    # Names that an example registers are those of a process without other examples.
    if LONG or path.stem.startswith(("own_", "ranked_")) or not hasattr(os, "fork"):
        command = [sys.executable, "-W", "error::UserWarning", str(path), *arguments]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        return run.returncode, run.stderr
    importlib.import_module("relive")
    importlib.import_module("torch")
    said = folder / "said.txt"
    child = os.fork()
    if not child:
        status = 1
        with open(said, "w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            try:
                os.chdir(folder)
                sys.argv = [str(path), *arguments]
                sys.path.insert(0, str(path.parent))
                warnings.resetwarnings()
                warnings.simplefilter("error", UserWarning)
                runpy.run_path(str(path), run_name="__main__")
                status = 0
            except SystemExit as end:
                status = int(bool(end.code))
            except BaseException:
                traceback.print_exc()
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.read_text()


@pytest.mark.parametrize("path", spared(sorted((ROOT / "examples").glob("*.py"))), ids=lambda path: path.name)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    if path.name in NEEDED:
        needs(NEEDED[path.name])
    assert path.name in EXAMPLES, f"add {path.name} to EXAMPLES with the arguments that make it short"
    arguments = EXAMPLES[path.name]
    if arguments is None:
        pytest.skip("tests/ray runs it")
    status, said = ran(path, arguments, tmp_path)
    assert status == 0, said


def test_no_listed_example_is_missing() -> None:
    assert sorted(EXAMPLES) == sorted(path.name for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_and_file_names_lead_somewhere(page: Path) -> None:
    text = read(page)
    links = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)
    broken = [link for link in links if not (page.parent / link).exists()]
    named = re.findall(r"(?<![\w/])((?:lab/)?(?:examples|benchmarks|docs|tests|native|src)/[\w/.-]+\.\w+)\b", text)
    broken += [name for name in named if not (ROOT / name).exists()]
    assert not broken


@pytest.mark.parametrize("page", INSIDE, ids=names(INSIDE))
def test_files_that_pages_about_the_source_name_exist(page: Path) -> None:
    named = re.findall(r"`([\w/.]+\.(?:py|[ch]pp))`", read(page))
    assert named
    assert max(map(len, read(page).splitlines())) <= 100
    assert not [name for name in named if not ((ROOT / name).exists() or [*SOURCE.rglob(name)])]


def test_the_index_lists_every_page_of_docs() -> None:
    folder = ROOT / "docs"
    index = {line.strip() for block in blocks(read(folder / "index.md")) for line in block.code.splitlines()}
    pages = {page.stem for page in folder.glob("*.md")} - {"index", "README"}
    pages |= {f"../{page.relative_to(ROOT).with_suffix('')}" for page in INSIDE}
    assert not pages - index


def test_meta_marks_languages_and_failures_are_seen() -> None:
    page = "<!-- no-run -->\n```python\n1 / 0\n```\n\n```python\nx = 2\n```\ntext\n"
    page += "```python\n>>> x\n3\n```\n<!-- needs-no.such.module -->\n```python\n1 / 0\n```\n```bash\nls\n```\n"
    found = blocks(page)
    assert [(block.language, block.mark) for block in found] == [
        ("python", "no-run"),
        ("python", ""),
        ("python", ""),
        ("python", "needs-no.such.module"),
        ("bash", ""),
    ]
    assert found[1].line == 7
    assert len(run_blocks("page", found)) == 1
    with pytest.raises(ZeroDivisionError):
        run_blocks("page", blocks("```python\n1 / 0\n```\n"))
