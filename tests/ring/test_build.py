"""The package builds with a compiler, and installs and works without one, or with one that fails half-way."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from needs import needs

import relive

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOLS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the sources of the package, without anything built."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("pyproject.toml", "CMakeLists.txt", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, copy)
        elif name != "LICENSE":
            (copy / name).write_text("relive\n")
    shutil.copytree(ROOT / "native", copy / "native")
    built = shutil.ignore_patterns("__pycache__", "*.so", "*.pyd", "*.dylib")
    shutil.copytree(ROOT / "src", copy / "src", ignore=built)
    return copy


def wheel(checkout: Path, **environment: str) -> tuple[Path, str]:
    """Build a wheel with the tools of this environment; where it lies, and what was said."""
    needs("scikit_build_core")
    code = "from scikit_build_core.build import build_wheel; build_wheel('dist')"
    settings = {**os.environ, "PATH": TOOLS, **environment}
    # The limit is for a build that hangs; others may keep the cores.
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, env=settings, capture_output=True, text=True, timeout=3_000
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = (checkout / "dist").glob("*.whl")
    return built, done.stdout + done.stderr


def try_out(built: Path, folder: Path) -> str:
    """Unpack a wheel and use it: which kernels serve, and what is said about it."""
    zipfile.ZipFile(built).extractall(folder)
    code = (
        "import relive, warnings\n"
        "from relive._ring import kernels as _kernels\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        "    for _ in range(2):\n"
        "        relive.ReplayBuffer(relive.Schema(obs=relive.Field((2,)), action=relive.Field(())), capacity=10)\n"
        "tree = relive.SumTree(3); tree.set(2, 1.0); assert tree.find(0.5) == 2\n"
        "print(_kernels.active().__name__, [w.category.__name__ for w in said])"
    )
    # Without `site`: an editable install hooks the import of this checkout in front of every path.
    packages = Path(np.__file__).parents[1]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(packages)])}
    settings.pop("RELIVE_KERNELS", None)
    done = subprocess.run([sys.executable, "-S", "-c", code], env=settings, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


WITHOUT = "relive._ring.kernels_numpy ['ReliveWarning']"


@pytest.mark.parametrize("compiler", ["/bin/false", "/nonexistent/c++"])
def test_without_a_working_compiler(checkout, tmp_path, compiler):
    """Check that the install succeeds, says why there is no extension, and the first buffer says it once."""
    built, said = wheel(checkout, CXX=compiler)
    assert "no working C++ compiler found; installing without" in re.sub(r"\s+", " ", said)
    assert not [name for name in zipfile.ZipFile(built).namelist() if "_native." in name and ".pyi" not in name]
    assert try_out(built, tmp_path / "site") == WITHOUT


@pytest.mark.slow
def test_with_a_compiler_that_fails_half_way(checkout, tmp_path):
    """Check that the build is given up, and the package works without the extension."""
    compiler = tmp_path / "c++"
    compiler.write_text('#!/bin/sh\ncase "$*" in *kernels.cpp*) exit 1;; esac\nexec c++ "$@"\n')
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    built, _ = wheel(checkout, CXX=str(compiler))
    assert try_out(built, tmp_path / "site") == WITHOUT


@pytest.mark.slow
def test_with_a_compiler(checkout, tmp_path):
    """Check that the extension is in the wheel and serves, without a warning."""
    built, _ = wheel(checkout)
    assert try_out(built, tmp_path / "site") == "relive._ring._native []"


def test_one_version_and_one_dependency():
    """Check that the version is read from the package, NumPy is the only dependency, and the extras are there."""
    project = SETTINGS["project"]
    assert "version" in project["dynamic"]
    assert SETTINGS["tool"]["scikit-build"]["metadata"]["version"]["input"] == "src/relive/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", relive.__version__)
    assert [re.split(r"\W", need)[0] for need in project["dependencies"]] == ["numpy"]
    assert {"cli", "gymnasium", "torch", "test", "test-all", "bench", "dev"} <= set(project["optional-dependencies"])


def test_the_compiler_may_not_change_floats():
    """Check against -ffast-math, which breaks the tests for NaN; contraction gives every processor other bits."""
    text = re.sub(r"#.*", "", (ROOT / "CMakeLists.txt").read_text())
    assert "-ffp-contract=off" in text
    assert not re.search(r"fast-math|Ofast|/fp:fast|-funsafe", text)
