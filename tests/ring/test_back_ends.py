"""Which kernels serve: the environment's choice, the fall-back and its warning, and equal bits from every build."""

from __future__ import annotations

import re

import pytest
from back_ends import BACKENDS, HAS_NATIVE, instruction_sets, run_python, stacks_behind, transcript

from relive._ring import kernels, kernels_numpy
from relive.errors import ArgumentError, ReliveWarning


@pytest.mark.filterwarnings("ignore:relive runs on its NumPy kernels:relive.errors.ReliveWarning")
@pytest.mark.parametrize("name", instruction_sets())
def test_every_instruction_set_gives_the_same_bits(name):
    code = "import relive._ring._native as n, back_ends as t; print(n.simd(), t.transcript(n), t.stacks_behind())"
    done = run_python(code, RELIVE_SIMD=name)
    assert done.returncode == 0, done.stderr
    with kernels.use("numpy"):
        assert done.stdout.split() == [name, transcript(kernels_numpy), stacks_behind()]


def test_an_unknown_instruction_set_is_refused():
    """Check relive's message, with the available ones; without the extension the variable means nothing."""
    done = run_python("import relive._ring.kernels as k; k.active()", RELIVE_SIMD="abacus")
    refusal = r"relive\.errors\.ArgumentError: Expected one of (`\w+`, )*`baseline`, got `abacus` - at `RELIVE_SIMD`"
    last = done.stderr.rstrip().rpartition("\n")[2]
    assert re.fullmatch(refusal, last) if HAS_NATIVE else not last


def test_an_unknown_back_end_is_refused():
    done = run_python("import relive; relive.SumTree(3)", RELIVE_KERNELS="fortran")
    assert done.stderr.splitlines()[-1] == (
        "relive.errors.ArgumentError: Expected `numpy` or `native`, got `fortran` - at `RELIVE_KERNELS`: "
        "leave it out to let relive choose"
    )


@pytest.mark.parametrize("name", [module.__name__.rpartition("_")[2] for module in BACKENDS])
def test_the_environment_forces_a_back_end(name):
    done = run_python("import relive._ring.kernels as k; print(k.active().__name__)", RELIVE_KERNELS=name)
    assert done.stdout.strip().endswith(name)


def test_without_the_extension_numpy_serves_and_says_so_once():
    """Check also that forcing absent kernels is refused, with a remedy."""
    hide = "import sys; sys.modules['relive._ring._native'] = None\n"
    code = hide + (
        "import warnings; from relive._ring import kernels as k\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always'); k.warn_once(); k.warn_once()\n"
        "print(k.active().__name__, [w.category.__name__ for w in said], str(said[0].message)[:34])"
    )
    done = run_python(code)
    assert done.stdout.split("\n")[0] == (
        "relive._ring.kernels_numpy ['ReliveWarning'] relive runs on its NumPy kernels, "
    ), done.stderr
    silent = run_python(hide + "from relive._ring import kernels as k; k.warn_once()", RELIVE_KERNELS="numpy")
    assert silent.stderr == ""
    forced = run_python(hide + "from relive._ring import kernels as k; k.active()", RELIVE_KERNELS="native")
    last = forced.stderr.splitlines()[-1]
    assert last.startswith("relive.errors.ArgumentError: Expected the native kernels, got none (")
    assert last.endswith("- at `RELIVE_KERNELS`: install relive from a wheel, or from source with a C++20 compiler")


def test_use_switches_and_switches_back():
    before = kernels.active()
    with kernels.use("numpy") as chosen:
        assert chosen is kernels.active() is kernels_numpy
    assert kernels.active() is before
    with pytest.raises(ArgumentError, match="Expected `numpy` or `native`, got `fortran`"), kernels.use("fortran"):
        pass
    assert issubclass(ReliveWarning, UserWarning)
