"""The site in a browser: quiet pages, links that lead somewhere, search, narrow screens, contrast.

``RELIVE_SITE=FOLDER`` tests a site that is already built; ``RELIVE_SHOTS=FOLDER`` takes pictures of six pages there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
from site_in_browser import axe, build, served

soup = pytest.importorskip("bs4").BeautifulSoup
pytestmark = pytest.mark.site

# For each page, what readers search for that has to find it first.
SEARCHES = {
    "boundaries": "truncated, terminated, done, time limit, n-step, autoreset",
    "saving": "save, crash, checkpoint, resume",
    "gpu": "gpu, CUDA, Isaac Lab",
    "choices": "PER, priority, HER, hindsight, NaN, seed, action chunk",
    "start": "install, notebook",
    "lerobot": "LeRobot",
    "stable-baselines3": "SB3, Stable-Baselines3",
    "switch": "CleanRL, rlpyt, labml",
    "cluster": "Ray",
    "sequences": "R2D2, Atari, frame stack, LSTM",
    "processes": "shared memory, multiprocessing",
    "trajectories": "Minari, D4RL, offline",
    "prefetch": "replay ratio",
    "recipes": "TensorBoard",
}
SHOWN = ["index", "start", "boundaries", "benchmarks", "reference/buffer", "reference/commands"]
LEFT = "net::ERR_ABORTED"  # the next page was opened meanwhile
WIDTHS = {"narrow": 360, "wide": 1280}
PLAYED = pytest.mark.skipif("RELIVE_PLAYGROUND" not in os.environ, reason="no playground: see test_playground.py")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("RELIVE_SITE")
    return Path(given).resolve() if given else build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with served(site) as found:
        yield found


def pages(site: Path) -> list[str]:
    """List every page but the one that leads to the first."""
    return sorted({str(path.relative_to(site)) for path in site.rglob("*.html")} - {"index.html"})


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    parsed = {name: soup((site / name).read_text("utf-8"), "html.parser") for name in pages(site)}
    anchors = {name: {tag["id"] for tag in page.select("[id]")} for name, page in parsed.items()}
    broken = []
    for name, page in parsed.items():
        for tag in page.select("[href], [src]"):
            target, anchor = urldefrag(urljoin(f"/{name}", unquote(tag.get("href") or tag["src"])))
            file = urlsplit(target).path.lstrip("/") or "index.html"
            if urlsplit(target).scheme or tag.get("rel") == ["canonical"]:
                continue
            if not (site / file).is_file() or (anchor and file in anchors and anchor not in anchors[file]):
                broken.append(f"{name}: {tag.get('href') or tag['src']}")
    assert not broken, "\n".join(broken)


def test_pages_are_quiet_and_fit_a_narrow_screen(site: Path, address: str, browser: Any) -> None:
    """Check for no error in the console, no failed or foreign request; no scrolling sideways at 360 pixels."""
    page = browser.new_page(viewport={"width": 360, "height": 740})
    faults: list[str] = []
    page.on("console", lambda said: faults.append(f"{said.location}: {said.text}") if said.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on(
        "requestfailed", lambda asked: None if asked.failure == LEFT else faults.append(f"{asked.url}: {asked.failure}")
    )
    page.on("request", lambda asked: None if local(asked.url, address) else faults.append(f"{page.url}: {asked.url}"))
    for name in pages(site):
        page.goto(f"{address}/{name}")
        width = max(page.eval_on_selector_all("html, .content, article", "all => all.map(one => one.scrollWidth)"))
        faults += [f"{name}: {width} pixels wide"] if width > 360 else []
    page.goto(address)
    page.wait_for_url(f"{address}/docs/index.html")
    page.close()
    assert not faults, "\n".join(faults)


def local(url: str, address: str) -> bool:
    return url.startswith((address, "data:", "blob:"))


@pytest.mark.parametrize(
    ("words", "wanted"), [(words, page) for page, every in SEARCHES.items() for words in every.split(", ")]
)
def test_search_finds_the_page_first_and_each_page_once(words: str, wanted: str, address: str, browser: Any) -> None:
    page = browser.new_page()
    page.goto(f"{address}/search.html?q={words}")
    page.wait_for_function("document.querySelector('#search-results p.search-summary')?.innerText.match(/found|not/)")
    page.wait_for_timeout(100)
    links = page.eval_on_selector_all("#search-results ul.search > li > a", "all => all.map(a => a.href)")
    page.close()
    found = [urlsplit(link).path.removeprefix("/docs/").removesuffix(".html") for link in links]
    assert found[0] == wanted, found
    assert len(found) == len({*found})


def test_code_is_not_cut_off_and_can_be_copied(site: Path, address: str, browser: Any) -> None:
    for width in WIDTHS.values():
        page = browser.new_page(viewport={"width": width, "height": 800})
        for name in SHOWN:
            page.goto(f"{address}/docs/{name}.html")
            blocks = page.locator("div.highlight > pre")
            wide = blocks.evaluate_all("all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length")
            assert not wide, f"{name} at {width} pixels"
            assert page.locator("button.copy").count() == blocks.count()
        page.close()


def test_pages_say_what_a_shared_link_shows(site: Path) -> None:
    for name in SHOWN:
        page = soup((site / "docs" / f"{name}.html").read_text("utf-8"), "html.parser")
        assert len(page.select_one('meta[name="description"]')["content"]) > 20
        assert page.select_one('meta[property="og:title"]')["content"]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    return axe(tmp_path_factory.mktemp("axe"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(scheme: str, address: str, browser: Any, script: str) -> None:
    page = browser.new_page(color_scheme=scheme)
    faults = []
    for name in SHOWN:
        page.goto(f"{address}/docs/{name}.html")
        page.evaluate(script)
        found = page.evaluate("axe.run({runOnly: ['color-contrast']})")
        faults += [
            f"{name}: {node['html'][:120]}: {node['any'][0]['message']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]
    page.close()
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "state",
    [
        "explorer.html#library=cpprb&mode=next_step&n=5&end=truncated",
        "explorer.html#library=sb3-learn&mode=disabled&n=1&end=terminated",
        pytest.param("playground.html", marks=PLAYED),
    ],
)
def test_what_can_be_used_is_accessible_and_fits(
    state: str, width: str, scheme: str, address: str, browser: Any, script: str
) -> None:
    page = browser.new_page(viewport={"width": WIDTHS[width], "height": 800}, color_scheme=scheme)
    page.goto(f"{address}/docs/{state}")
    for closed in page.locator(".ex-steps summary").all():
        closed.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    page.evaluate(script)
    found = page.evaluate(f"axe.run('#{state.partition('.')[0]}')")
    assert not [(rule["id"], node["html"][:160]) for rule in found["violations"] for node in rule["nodes"]]
    page.close()


@pytest.mark.parametrize("releases", [["0.2", "0.1"], None])
def test_the_choice_of_releases(releases: list[str] | None, site: Path, browser: Any, tmp_path: Path) -> None:
    """Check that it shows only in a release's folder next to `versions.json`, and leads to the same page."""
    for name in ("0.1", "0.2"):
        (tmp_path / name).symlink_to(site)
    if releases:
        (tmp_path / "versions.json").write_text(json.dumps(releases))
    with served(tmp_path) as address:
        page = browser.new_page()
        page.goto(f"{address}/0.1/docs/reference/errors.html", wait_until="networkidle")
        choice = page.locator("select.versions")
        assert choice.count() == bool(releases)
        if releases:
            assert (choice.input_value(), choice.locator("option").all_inner_texts()) == ("0.1", releases)
            choice.select_option("0.2")
            page.wait_for_url(f"{address}/0.2/docs/reference/errors.html")
        page.close()


@pytest.mark.skipif("RELIVE_SHOTS" not in os.environ, reason="RELIVE_SHOTS=FOLDER takes pictures")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pictures(width: str, scheme: str, address: str, browser: Any) -> None:
    page = browser.new_page(color_scheme=scheme, viewport={"width": WIDTHS[width], "height": 900})
    for name in SHOWN:
        page.goto(f"{address}/docs/{name}.html")
        page.screenshot(path=Path(os.environ["RELIVE_SHOTS"]) / f"{name.replace('/', '-')}-{width}-{scheme}.png")
    page.close()
