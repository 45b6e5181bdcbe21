"""The Triton kernels do what the ops do, bit by bit, and no compiler makes one rounding out of two."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
from pathlib import Path

import pytest
from back_ends import run_python
from needs import needs

needs("torch")
if importlib.util.find_spec("triton") is None:
    pytest.skip("triton is not installed", allow_module_level=True)

from relive._ring.kernels_numpy.power import EXP_TERMS, LOG_TERMS

TARGETS = [("cuda", "80", "32"), ("cuda", "90", "32"), ("hip", "gfx942", "64")]
KERNELS = {"_draw", "_draw.whole", "_weigh", "_count.whole", "_choose", "_choose.whole"}
KERNELS |= {"_update.whole", "_tag", "_put", "_hear", "_rebuild.whole", "_redo_level", "_rebuild_from.whole"}
KERNELS |= {"_write", "_gather", "_unroll", "_gather.chunks", "_write.stacks", "_gather.stacks", "_unroll.stacks"}
POWERS = {"_draw.whole", "_weigh", "_update.whole", "_put", "_hear", "_write", "_write.stacks"}
Code = dict[str, dict[str, str]]


def test_kernels_and_ops_agree() -> None:
    """Interpreted, in one launch and in several; every result, and all that moves."""
    calls = ["prioritized_draws", "shared_prioritized_draws", "uniform_draws", "updates", "shared_updates", "buffers"]
    calls += ["sequences"]
    code = "import triton_kernels as kernels\n" + "\n".join(f"kernels.{call}()" for call in calls)
    done = run_python(code, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr


def test_launches_of_a_turn() -> None:
    """Adding, drawing, gathering and updating."""
    done = run_python("import triton_kernels\ntriton_kernels.launches()", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 10
    # `first` of sequences is worked out by PyTorch's operations.
    assert all(count <= (60 if name.startswith("Sequences") else 10) for name, count in found.items()), found


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target[1])
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Code:
    """What every kernel becomes on a device, none of which is there."""
    cache: Path = tmp_path_factory.mktemp("triton")
    program = f"import triton_kernels\ntriton_kernels.compiled(*{request.param})"
    done = run_python(program, TRITON_CACHE_DIR=str(cache), TRITON_INTERPRET="0")
    assert done.returncode == 0, done.stderr
    found: Code = json.loads(done.stdout)
    assert found.keys() == KERNELS
    return found


def test_every_operation_is_rounded_once(code: Code) -> None:
    """No fused multiply-add but in AMD's divisions and conversions, which are exact; no approximation."""
    for name, parts in code.items():
        assert not re.search(r"\bf(add|sub|mul|div) \w*(contract|fast|reassoc|arcp)|llvm\.fm", parts["llir"]), name
        if "ptx" in parts:
            used = set(re.findall(r"(?<![\w.])(?:fma|mad|mul|add|sub|div|rcp|sqrt)\.[\w.]*f64\b", parts["ptx"]))
            assert used <= {"mul.rn.f64", "add.rn.f64", "sub.rn.f64", "div.rn.f64"}, (name, used)
            assert not re.search(r"\.(approx|full|ftz)\b", parts["ptx"]), name
        else:
            count = {
                op: len(re.findall(op, parts["amdgcn"])) for op in (r"v_fmac?_f64", "v_div_fixup", "v_cvt_i32_f64")
            }
            fused, divisions, conversions = count.values()
            assert fused == 5 * divisions + conversions, (name, count)
            assert not re.search(r"v_(mad|mac)\w*_f64", parts["amdgcn"]), name


def test_literals_keep_all_their_bits(code: Code) -> None:
    """Triton makes float32 of some of them."""
    for name, terms in {
        **dict.fromkeys(POWERS, (*LOG_TERMS, *EXP_TERMS)),
        "_gather": (0.9, 0.9**2),
        "_unroll": (0.9,),
        "_gather.chunks": (0.9, 0.9**2),
        "_gather.stacks": (0.9, 0.9**2),
        "_unroll.stacks": (0.9,),
    }.items():
        for term in (*terms, *((0.7,) if name.startswith("_write") else ())):
            bits = struct.pack(">d", term).hex()
            assert re.search(rf"0[dx]{bits}|{re.escape(llvm(term))}", code[name]["llir"], re.IGNORECASE), (name, term)


def llvm(number: float) -> str:
    """A float64 as LLVM may write it, where six digits are all of it."""
    return f"{number:.6e}"


def test_barriers_and_atomics(code: Code) -> None:
    """In one program: tags, barrier, who won, barrier, values, barrier; then a barrier a level."""
    signs = {"load": "L", "store": "S", "atomic_rmw": "A", "for": "{"}
    for name, order in {
        "_update.whole": r"A\|L\|S\|L[LS]*\{L+[LS]+\|",
        "_rebuild.whole": r"L+\{L+[LS]+\|",
        "_rebuild_from.whole": r"\{L+[LS]+\|",
        "_draw.whole": r".*\|[LS]+",
        "_choose.whole": r".*\|LS",
    }.items():
        events = re.findall(r"(?:tt|scf)\.(load|store|atomic_rmw|for)\b|\w+\.barrier\b", code[name]["ttir"])
        assert re.search(order + "$", "".join(signs.get(event, "|") for event in events)), name
    for name in ("_update.whole", "_tag"):
        if "ptx" in code[name]:
            assert "atom.global.gpu.acq_rel.min.s64" in code[name]["ptx"]
            assert "bar.sync" in code[name]["ptx"]
        else:
            assert "global_atomic_smin_x2" in code[name]["amdgcn"]
            assert "s_barrier" in code[name]["amdgcn"]
