"""What the pages say is so: their code runs, their links lead somewhere, their examples exist."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from children import run_program
from markdown_pages import PAGES, Block, blocks, read
from needs import needs
from source_tree import ROOT, SOURCE

# Every example and recipe, and the arguments that make it short.
EXAMPLES = {
    "behaviour_cloning.py": "--updates 5 --episodes 3",
    "bit_flipping.py": "--bits 4 --steps 400",
    "cleanrl_dqn.py": "--steps 1100",
    "cleanrl_sac.py": "--steps 520",
    "clone_from_trajectories.py": "--updates 50 --rollouts 2",
    "dreamer_replay.py": "",
    "ray_sizes.py": "",
    "reaching_sb3.py": "--steps 60",
    "own_item.py": "",
    "own_sampler.py": "",
    "ranked_sampler.py": "",
    "tic_tac_toe.py": "--games 20",
    "write_back.py": "",
    "recipes/action_chunks.py": "30",
    "recipes/actors_and_learner.py": "30",
    "recipes/atari_stacks.py": "200",
    "recipes/d4rl_to_batch.py": "",
    "recipes/demonstrations_half_and_half.py": "100",
    "recipes/log_to_tensorboard.py": "1000",
    "recipes/per_dqn.py": "1100",
    "recipes/r2d2.py": "400",
    "recipes/sac_use_per.py": "120 --use-per",
    "recipes/start_or_resume.py": "150",
}
ELSEWHERE = {"ray_dqn.py", "ray_trajectories.py"}  # tests/ray runs them, on its cluster
# Pages and examples whose code needs a library that may not be there.
NEEDED = {
    "h5py": "d4rl_to_batch.py",
    "pyarrow": "behaviour_cloning.py robots.md",
    "stable_baselines3": "sac_use_per.py reaching_sb3.py stable-baselines3.md",
    "torch": "action_chunks.py demonstrations_half_and_half.py per_dqn.py r2d2.py start_or_resume.py "
    "lerobot.md recipes.md",
}
# Other tests cover what these do, and they take seconds.
LONGER = {"reaching_sb3.py"}
INSIDE = [ROOT / "ARCHITECTURE.md", *sorted(SOURCE.glob("*/README.md"))]
WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks(read(page)))]


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def look_for_needed(path: Path) -> None:
    """Skip the test if a library is missing that a page or an example needs."""
    for library, names in NEEDED.items():
        if path.name in names.split():
            needs(library)


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


def spared(names: list[Any]) -> list[Any]:
    """Return the pages or examples; those that take long run in the long mode."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in LONGER else name for name in names]


@pytest.mark.parametrize("page", WITH_CODE, ids=names(WITH_CODE))
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look_for_needed(page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    found = blocks(read(page))
    faults = run_blocks(str(page), found)
    assert not faults, "\n".join(faults)
    if missing := {block.mark for block in found if not installed(block.mark)}:
        pytest.skip(f"all blocks ran but those of {missing}: pip install '.[test-all]'")


RUN = """
import runpy, sys, warnings
warnings.simplefilter("error", UserWarning)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


# Whatever makes PyTorch's optimizers imports its compiler, which takes longer than most examples.
LOADED = ["torch", "torch._dynamo", "gymnasium", "hypothesis.strategies"]


@pytest.mark.parametrize("name", spared(list(EXAMPLES)))
def test_an_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "examples" / name
    look_for_needed(path)
    monkeypatch.chdir(tmp_path)
    resumes = path.name == "start_or_resume.py"
    for _ in range(2 if resumes else 1):
        done = run_program(RUN, path, *EXAMPLES[name].split(), path=[path.parent], timeout=300, loaded=LOADED)
        assert done.returncode == 0, done.stderr
    assert not resumes or "resumes at step 150 with 150 steps" in done.stdout


def test_every_example_is_listed_and_recipes_are_short() -> None:
    folder = ROOT / "examples"
    there = {str(path.relative_to(folder)) for pattern in ("*.py", "recipes/*.py") for path in folder.glob(pattern)}
    assert there == EXAMPLES.keys() | ELSEWHERE, "add it to EXAMPLES with the arguments that make it short"
    for path in folder.glob("recipes/*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, path
        assert f"(../examples/recipes/{path.name})" in read(ROOT / "docs" / "recipes.md")


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
    listing = [block for name in ("index.md", "developers.md") for block in blocks(read(folder / name))]
    index = {line.strip() for block in listing for line in block.code.splitlines()}
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


def test_code_of_pages_fits_their_column() -> None:
    """Check for code on the site of which no line is cut off."""
    long = [
        f"{page.name}, line {block.line + number}: {line}"
        for page in PAGES
        if page.parent == ROOT / "docs" and page.name != "playground.md"
        for block in blocks(read(page))
        if block.language == "python"
        for number, line in enumerate(sources(block.code))
        if len(line) > 88
    ]
    assert not long, "\n".join(long)


def sources(code: str) -> list[str]:
    """Return the lines of a block with those that are output left empty."""
    if not code.lstrip().startswith(">>>"):
        return code.splitlines()
    return [line if line.startswith((">>>", "...")) else "" for line in code.splitlines()]
