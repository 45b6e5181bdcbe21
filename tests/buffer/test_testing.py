"""`relive.testing` needs NumPy alone; Hypothesis comes in with the strategies, and a missing one is named."""

from __future__ import annotations

import numpy as np
import pytest
from back_ends import run_python

from relive import Batch
from relive.testing import assert_items

HIDE = "import sys; sys.modules['hypothesis'] = sys.modules['pytest'] = None\n"


def test_the_suites_run_without_hypothesis_and_pytest() -> None:
    code = HIDE + (
        "import relive\nfrom relive.testing import SamplerContract\n"
        "class TestUniform(SamplerContract):\n    sampler = relive.Uniform()\n"
        "TestUniform().test_an_empty_buffer_refuses()"
    )
    done = run_python(code)
    assert not done.returncode, done.stderr


def test_without_hypothesis_the_strategies_name_the_command() -> None:
    last = run_python(HIDE + "from relive.testing import strategies").stderr.splitlines()[-1]
    assert last == (
        "relive.errors.MissingExtra: Expected the package `hypothesis`, got none - at `relive.testing.strategies`: "
        "pip install 'relive[testing]'"
    )


def test_relive_itself_does_not_load_the_suites() -> None:
    code = "import relive, sys; print(*[name for name in sys.modules if name.startswith('relive.testing')])"
    assert not run_python(code).stdout.strip()


def test_a_difference_is_named_by_its_path() -> None:
    rows = {"obs": {"eye": {"left": np.zeros((2, 3)), "right": np.ones((2, 3))}}, "reward": np.zeros(2)}
    item = {"obs": {"eye": {"left": np.zeros(3), "right": np.zeros(3)}}, "reward": np.zeros(())}
    with pytest.raises(AssertionError, match=r"^obs\.eye\.right: "):
        assert_items(Batch({**rows, "ids": np.arange(2), "weights": np.ones(2)}), [item, item])
