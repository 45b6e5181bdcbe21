"""The playground: README's example runs in the page, and draws the batch that it draws elsewhere."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from site_in_browser import ROOT, build, served

FILES = os.environ.get("RELIVE_PLAYGROUND", "")
BUILT = pytest.mark.skipif(
    not FILES, reason="no playground: python docs/_ext/playground.py FOLDER, and RELIVE_PLAYGROUND=FOLDER"
)
# What is drawn, in numbers.
SHOWN = """
import json
names = ("ids", "steps", "obs", "action", "reward", "next_obs", "weights")
print(json.dumps({name: getattr(batch, name).tolist() for name in names}))
"""


def example(page: str) -> str:
    """Return the first Python example of a page."""
    found = re.search(r"^```python\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_the_example_is_that_of_the_readme_with_seeds() -> None:
    """Check the additions: `seed=0` for the buffer, a seed for the actions, and lines that print."""
    here = ast.parse(example("docs/playground.md"))
    for node in ast.walk(here):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "relive.ReplayBuffer":
            node.keywords = [word for word in node.keywords if word.arg != "seed"]
    added = ("envs.action_space.seed(0)", "print(", "for at in")
    lines = [ast.unparse(node) for node in here.body]
    kept = [line for line in lines if not line.startswith(added)]
    assert kept == [ast.unparse(node) for node in ast.parse(example("README.md")).body]


def built(folder: Path, files: str) -> Path:
    settings = ("root_doc=docs/playground", "include_patterns=docs/playground.md", f"playground_folder={files}")
    return build(folder, *settings, "suppress_warnings=myst.xref_missing,toc")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(built(tmp_path_factory.mktemp("site"), FILES)) as found:
        yield f"{found}/docs/playground.html"


@pytest.mark.site
def test_a_site_without_the_files_says_so(browser: Any, tmp_path: Path) -> None:
    with served(built(tmp_path, "")) as found:
        page = browser.new_page()
        page.goto(f"{found}/docs/playground.html")
        assert "built without the playground" in page.inner_text("#playground")
        assert page.inner_text("#playground pre").strip().startswith("import gymnasium, relive")
        assert page.locator("button.pg-run").count() == 0
        page.close()


@pytest.mark.site
def test_a_folder_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"has no pyodide-lock\.json"):
        built(tmp_path / "site", str(tmp_path))


def run(page: Any, code: str) -> tuple[str, str]:
    """Run code in the page; its status and what it printed."""
    page.fill("#pg-code", code)
    page.click(".pg-run")
    page.wait_for_function("!document.querySelector('.pg-run').disabled", timeout=180_000)
    return page.inner_text(".pg-status"), page.text_content(".pg-output")


@pytest.mark.site
@BUILT
def test_it_draws_the_batch_that_is_drawn_elsewhere(browser: Any, address: str) -> None:
    """Check that ids and steps are the same, the pendulums' numbers up to sines, and that all is loaded from here."""
    page = browser.new_page()
    asked: list[str] = []
    page.context.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    assert not any("pyodide" in url for url in asked)
    status, printed = run(page, example("docs/playground.md") + SHOWN)
    assert status.startswith("Done"), printed
    assert any("pyodide" in url for url in asked)
    origin = address.removesuffix("/docs/playground.html")
    assert not [url for url in asked if not url.startswith((origin, "data:", "blob:"))]
    command = [sys.executable, "-c", example("docs/playground.md") + SHOWN]
    settings = os.environ | {"RELIVE_KERNELS": "numpy", "PYTHONPATH": str(ROOT / "src")}
    elsewhere = subprocess.run(command, capture_output=True, text=True, check=True, env=settings).stdout
    assert printed.splitlines()[0] == elsewhere.splitlines()[0]
    here, there = (json.loads(text.splitlines()[-1]) for text in (printed, elsewhere))
    assert (here["ids"], here["steps"]) == (there["ids"], there["steps"])
    assert len(here["ids"]) == 256
    for name in ("obs", "action", "reward", "next_obs", "weights"):
        assert str(here[name]) == str(there[name]) or close(here[name], there[name]), name
    page.close()


def close(here: Any, there: Any) -> bool:
    if isinstance(here, list):
        return len(here) == len(there) and all(map(close, here, there))
    return bool(here == pytest.approx(there, rel=1e-4, abs=1e-4))


@pytest.mark.site
@BUILT
def test_errors_stops_and_the_keyboard(browser: Any, address: str) -> None:
    page = browser.new_page()
    page.goto(address)
    status, printed = run(page, "import relive\nrelive.Transitions(n_step=0)")
    assert status == "The code raised an error."
    assert "relive.errors.ArgumentError: Expected" in printed
    assert "_pyodide" not in printed
    page.fill("#pg-code", "print('begun')\nwhile True: pass")
    page.focus("#pg-code")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("document.querySelector('.pg-status').textContent === 'Running.'")
    page.click("text=Stop")
    assert page.inner_text(".pg-status").startswith("Stopped.")
    assert run(page, "6 * 7")[1].strip() == "42"
    page.click("text=Restore the example")
    assert page.input_value("#pg-code") == example("docs/playground.md").rstrip()
    page.close()
