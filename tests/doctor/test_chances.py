"""Draws follow the probabilities that a sampler states, as the doctor sees it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import relive
from relive.doctor import pipelines
from relive.doctor._chances import stated_law
from relive.doctor._pipeline import Patient

SAMPLERS = {
    "uniform": relive.Uniform(),
    "over episodes": relive.Uniform(over="episodes"),
    "prioritized": relive.Prioritized(),
    "recent": relive.Recent(share=0.2),
    "blend": relive.Blend((relive.Uniform(), 0.4), (relive.Prioritized(), 0.3), (relive.Recent(mean_age=4), 0.3)),
    "once": relive.Once(),
}


def patient_of(sampler: Any, **methods: Any) -> Patient:
    """Make a patient of relive's own pipeline with another sampler."""
    own = {"sampler": sampler} | ({} if sampler.prioritizes else {"update": None}) | methods
    return Patient(type("Own", (pipelines.named("relive"),), own), "own")


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_draw_by_what_they_state(name: str) -> None:
    if name == "once":  # it states nothing
        assert not stated_law(patient_of(SAMPLERS[name], probability=None), AutoresetMode.SAME_STEP, (1,), ())
        return
    (check,) = stated_law(patient_of(SAMPLERS[name]), AutoresetMode.SAME_STEP, (1,), ())
    assert not check.wrong, check.example
    assert check.of > 30


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (lambda law: law[::-1], "is drawn .* times in 4000 draws instead of"),
        (lambda law: 0.9 * law, "whose sum is 0.9"),
        (lambda law: law[1:], "probabilities of .* items"),
    ],
)
def test_other_laws_are_found(states: Any, words: str) -> None:
    kind = pipelines.named("relive")
    patient = patient_of(SAMPLERS["recent"], probability=lambda self: states(np.array(kind.probability(self))))
    (check,) = stated_law(patient, AutoresetMode.SAME_STEP, (1,), ())
    assert check.wrong
    assert re.search(words, check.example)
