"""The Triton kernels do what the ops do, bit by bit, and no compiler puts two roundings into one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from back_ends import run_python
from needs import needs

needs("triton")

TARGETS = [("cuda", "80", "32"), ("cuda", "90", "32"), ("hip", "gfx942", "64")]
KERNELS = {"_draw", "_draw.whole", "_weigh", "_count.whole", "_choose", "_choose.whole"}
KERNELS |= {"_update.whole", "_tag", "_put", "_hear", "_rebuild.whole", "_redo_level"}


@pytest.mark.parametrize(
    "call", ["draws((1, 5, 200, 130, 1500))", "uniform_draws((1, 200, 1500))", "updates((1, 40, 300, 4500))"]
)
def test_kernels_and_ops_agree(call: str) -> None:
    """Interpreted, in one launch and in several."""
    done = run_python(f"from triton_kernels import *; {call}", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target[1])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """A back end, and the code of every kernel for it."""
    cache: Path = tmp_path_factory.mktemp("triton")
    code = f"from triton_kernels import *; compiled(*{request.param})"
    done = run_python(code, TRITON_CACHE_DIR=str(cache), TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stderr
    return request.param[0], json.loads(done.stdout)
