"""Table D, too: whether draws follow the probabilities that a buffer states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from gymnasium.vector import AutoresetMode

from ._pipeline import Patient, on_host
from ._report import Finding

STATED = "draws by the stated probabilities"
_CALLS, _ROWS = 32, 20  # a full ring, that has wrapped
_DRAWS = 4000
_REMEDY = "state the probability of a draw of one item, by the priorities and the counts of that moment"


def stated_law(
    patient: Patient, mode: AutoresetMode, n_steps: Sequence[int], known: Sequence[Finding]
) -> list[Finding]:
    """Compare draws of one item with the probabilities that the pipeline states; nothing where it states none."""
    del n_steps, known
    if not all(callable(getattr(patient.pipeline, name, None)) for name in ("sample", "probability")):
        return []
    patient.renew()
    patient.run(_CALLS, 1, mode, capacity=patient.lanes * _ROWS)
    if patient.prioritizes:
        # Later ones win: a priority in eight steps of a draw, so that the law is not flat.
        for _ in range(_ROWS):
            items = patient.sample(patient.batch)
            patient.update([item.handle for item in items], 1.0 + 3 * (np.arange(len(items)) % 4))
    items = patient.items()
    with patient.sound("probability"):
        chances = on_host(patient.pipeline.probability()).reshape(-1).astype(np.float64)
    wrong = _wrong([item.obs for item in items], chances, patient)
    return [Finding.of_probe(STATED, "D", mode, 1, len(wrong), len(items), next(iter(wrong), ""), _REMEDY)]


def _wrong(starts: Sequence[float], chances: np.ndarray, patient: Patient) -> list[str]:
    """Say of each item that is drawn too often or too seldom how often it is: by six standard deviations."""
    if len(chances) != len(starts):
        return [f"{len(chances)} probabilities of {len(starts)} items"]
    if not (chances >= 0).all() or abs(chances.sum() - 1.0) > 1e-6:
        return [f"probabilities of {len(chances)} items, from {chances.min():g} on, whose sum is {chances.sum():g}"]
    expected: Counter[float] = Counter()
    for obs, chance in zip(starts, chances.tolist(), strict=True):
        expected[obs] += _DRAWS * chance
    drawn = Counter(patient.draw(1)[0].obs for _ in range(_DRAWS))
    return [
        f"obs {obs:g} is drawn {drawn[obs]} times in {_DRAWS} draws instead of {expected[obs]:.0f}"
        for obs in sorted(expected | drawn)
        if abs(drawn[obs] - expected[obs]) > 6 * expected[obs] ** 0.5 + 6 * (expected[obs] > 0)
    ]
