"""The built site, served to a browser on this machine."""

from __future__ import annotations

import functools
import http.server
import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve this folder; yield the address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def build(target: Path, *settings: str) -> Path:
    """Build the site as CONTRIBUTING says, where a warning is an error; or, without the playground, as settings say."""
    pytest.importorskip("furo", reason="no Sphinx: pip install '.[docs]'")
    strict = [] if settings else ["-W", "--keep-going", "-n"]
    options = [word for setting in settings for word in ("-D", setting)]
    command = [sys.executable, "-m", "sphinx", "-q", *strict, "-b", "html", "-c", "docs", ".", str(target), *options]
    kept = {name: value for name, value in os.environ.items() if name != "RELIVE_PLAYGROUND" or not settings}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=kept)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Yield Debian's Chromium, driven by Playwright."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install '.[docs]'")
    chromium = os.environ.get("RELIVE_CHROMIUM") or shutil.which("chromium")
    if not chromium:
        pytest.skip("no Chromium: apt-get install chromium, or RELIVE_CHROMIUM=/path/to/it")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


def axe(folder: Path) -> str:
    """Return the script of axe-core, from its npm package."""
    if not shutil.which("npm"):
        pytest.skip("no npm, which brings axe-core")
    packed = subprocess.run(["npm", "pack", "--silent", "axe-core@4"], cwd=folder, capture_output=True, text=True)
    if packed.returncode:
        pytest.skip(f"npm cannot fetch axe-core: {packed.stderr.strip()[-200:]}")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        member = archive.extractfile("package/axe.min.js") or io.BytesIO()
        return member.read().decode("utf-8")
