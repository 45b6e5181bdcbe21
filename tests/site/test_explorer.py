"""The boundary explorer: its data are what the doctor writes, and it shows them, whatever is chosen."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from typing import Any

import pytest
from needs import needs
from site_in_browser import ROOT, build, served

RECORDED = ROOT / "docs" / "data" / "explorer.json"
DATA = json.loads(RECORDED.read_text("utf-8"))
PIPELINES = DATA["pipelines"]
# Modules of the libraries, where relive's own do not do.
MODULES = {name: name for name in ("tianshou", "cpprb", "torchrl")} | {"sb3": "stable_baselines3", "fasttd3": "torch"}
STATES = [
    (name, *state.split("/")) for name, pipeline in PIPELINES.items() for state in pipeline["states"]
]  # library, mode, n, end
PAGES = "docs/explorer.md,docs/playground.md"  # they build in seconds, the site in a minute


@pytest.fixture(scope="module")
def extension() -> Any:
    spec = importlib.util.spec_from_file_location("boundary_explorer", ROOT / "docs/_ext/boundary_explorer.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PIPELINES)
def test_the_recorded_traces_are_what_the_doctor_writes(name: str, extension: Any) -> None:
    """Compare; after a change of the doctor or of a library: python docs/_ext/boundary_explorer.py."""
    if module := MODULES.get(name.partition("-")[0]):
        needs(module)
    assert extension.traced(name) == PIPELINES[name]["states"]
    shown = extension.SHOWN[name]
    assert (PIPELINES[name]["title"], PIPELINES[name]["about"]) == (shown.title, shown.about)


def test_what_the_page_has_without_a_browser(extension: Any) -> None:
    page = (ROOT / "docs/explorer.md").read_text("utf-8")
    assert "\n".join(extension.static_table()) in page
    assert RECORDED.stat().st_size < 200_000
    assert list(PIPELINES) == list(extension.SHOWN)
    assert len(PIPELINES["relive"]["states"]) == 18
    assert all(len(item) == 4 for state in PIPELINES["relive"]["states"].values() for item in state["items"])
    for state in PIPELINES["relive-windows"]["states"].values():  # of episodes of 4, 3 and 5 steps
        ends = [k for length in (4, 3, 5) for k in reversed(range(length))]
        starts = [k for length in (4, 3, 5) for k in range(length)]
        masks = zip(starts, ends, strict=True)
        assert state["masks"] == [f"{int(not first)}0 {'0' * (left + 1):1<4.4}" for first, left in masks]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = ("root_doc=docs/explorer", f"include_patterns={PAGES}", "suppress_warnings=myst.xref_missing,toc")
    with served(build(tmp_path_factory.mktemp("site"), *settings)) as found:
        yield f"{found}/docs/explorer.html"


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    page = browser.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(address)
    yield page
    page.close()
    assert not faults


# What a reader sees: the text of each cell, which cells are marked, lines of the figure, and controls out of use.
SEEN = """() => ({
    rows: [...document.querySelectorAll("#explorer .ex-scroll tbody tr")].map(
        row => [...row.children].map(cell => [cell.textContent, cell.classList.contains("ex-wrong")])),
    caption: document.querySelector("#explorer .ex-scroll caption").textContent,
    verdict: document.querySelector("#explorer [role=status]").textContent,
    faults: [...document.querySelectorAll(".ex-faults dt")].map(term => term.textContent),
    lines: [...document.querySelectorAll(".ex-figure .ex-item")].map(line => line.classList.contains("ex-bad")),
    missing: document.querySelectorAll(".ex-figure .ex-missing").length,
    disabled: [...document.querySelectorAll("#explorer input:disabled")].map(input => input.name + "=" + input.value),
})"""


def said(value: float | None) -> str:
    return "not a number" if value is None else f"{round(value, 5):.7g}"


def expected_row(number: int, item: list[Any], masks: list[str]) -> list[tuple[str, bool]]:
    """Work out a row of the table from the recorded item, and the masks of its state's, if there are."""
    values, probes, right = item[:4], item[4] if len(item) > 4 else [], item[5] if len(item) > 4 else None
    names = ("obs", "reward", "discount", "next_obs")
    wrong = {DATA["probes"][probe]["cell"] for probe in probes}
    beside = dict(zip(names[1:], right or [], strict=False))
    cells = [(str(number), False)]
    for name, value in zip(names, values, strict=True):
        text = f"✕ wrong: {said(value)}" if name in wrong else said(value)
        text += "not used" if name == "next_obs" and values[2] == 0 else ""
        text += f"right: {said(beside[name])}" if name in wrong and name in beside else ""
        cells.append((text, name in wrong))
    for mask in masks[number - 1 : number]:
        obs, action = mask.replace("0", "●").replace("1", "○").split()
        cells.append((f"obs {obs}, action {action}", False))
    return [*cells, (", ".join(probes) or "right", False)]


@pytest.mark.site
def test_every_combination_of_controls_shows_what_was_recorded(page: Any) -> None:
    for library, mode, n, end in STATES:
        page.select_option("#ex-library", library)
        for name, value in (("mode", mode), ("n", n), ("end", end)):
            page.check(f'#explorer input[name={name}][value="{value}"]')
        assert page.url.rpartition("#")[2] == f"library={library}&mode={mode}&n={n}&end={end}"
        seen, state = page.evaluate(SEEN), PIPELINES[library]["states"][f"{mode}/{n}/{end}"]
        wrong = [len(item) > 4 for item in state["items"]]
        masks = state.get("masks", [])
        rows = [expected_row(number, item, masks) for number, item in enumerate(state["items"], 1)]
        assert [[tuple(cell) for cell in row] for row in seen["rows"]] == rows, (library, mode, n, end)
        assert seen["lines"] == wrong
        assert seen["missing"] == len(state["missing"])
        count = f"{sum(wrong)} of {len(wrong)} items are wrong."
        assert (count if any(wrong) else f"All {len(wrong)} items are right.") in seen["verdict"]
        probes = [probe for item in state["items"] if len(item) > 4 for probe in item[4]]
        assert seen["faults"] == [f"{probe}: {probes.count(probe)}" for probe in dict.fromkeys(probes)]
        assert PIPELINES[library]["title"] in seen["caption"]
        known = {tuple(key.split("/")) for key in PIPELINES[library]["states"]}
        modes = {
            f"mode={other}" for other in ("next_step", "same_step", "disabled") if other not in {k[0] for k in known}
        }
        steps = {f"n={other}" for other in "135" if (mode, other, end) not in known}
        assert {*seen["disabled"]} == modes | steps


@pytest.mark.site
def test_the_keyboard_alone_changes_the_state(page: Any) -> None:
    def focused() -> str:
        return str(page.evaluate("document.activeElement.name ?? ''"))

    for _ in range(60):
        if focused() == "library":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("t")  # Tianshou
    reached = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press("Tab")
        reached.append(focused())
        page.keyboard.press(key)
    assert reached == ["mode", "n", "end"]
    assert page.url.endswith("#library=tianshou&mode=same_step&n=5&end=terminated")
    assert "Tianshou" in page.inner_text("#explorer [role=status]")


@pytest.mark.site
@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ("library=fasttd3&mode=same_step&n=1&end=truncated", "3 of 12 items are wrong. FastTD3"),
        ("library=torchrl&mode=next_step&n=3&end=terminated", "6 of 12 items are wrong. TorchRL, Collector; DISABLED"),
        ("library=nothing&n=7", "3 of 15 items are wrong. Stable-Baselines3, loop by hand; NEXT_STEP, n = 1"),
    ],
)
def test_an_address_names_a_state(given: str, verdict: str, page: Any, address: str) -> None:
    """Check that absent modes and unknown choices fall back to the library's own."""
    page.goto(f"{address}#{given}")
    page.reload()
    assert verdict in page.inner_text("#explorer [role=status]")
    page.click("#explorer >> text=none")
    assert "All 12 items are right. relive" in page.inner_text("#explorer [role=status]")
    page.go_back()
    assert verdict in page.inner_text("#explorer [role=status]")


@pytest.mark.site
def test_without_javascript_there_is_a_table(browser: Any, address: str) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(address)
    assert page.locator("#explorer tbody tr").count() == 15
    assert "phantom step" in page.inner_text("#explorer table")
    page.close()
