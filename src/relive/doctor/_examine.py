"""The examination: tables A to F."""

from __future__ import annotations

import contextlib
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from relive.errors import ArgumentError, message

from ._catalogue import CATALOGUE, wants
from ._chances import stated_law
from ._consumption import table_f
from ._draws import table_d
from ._items import DISCOUNT, IGNORED, MISSING, NO_STEP, PHANTOM, PROBES, REMEDIES, REWARD, Fault, judge
from ._pipeline import Patient, Pipeline, mode_of
from ._priorities import table_c
from ._report import Finding, Report
from ._streams import table_b
from ._threads import table_e

CALLS = 120
_MANY = 4  # kinds of faults that one cause has
_LONGER = "sum n steps; of a buffer that has one-step targets only, examine these alone: `--n-step 1`"


def examine(
    pipeline: Pipeline | Callable[[], Pipeline],
    *,
    n_steps: int | Iterable[int] = (1, 3),
    modes: AutoresetMode | str | Iterable[AutoresetMode | str] | None = None,
    name: str | None = None,
) -> Report:
    """Run a pipeline in environments that count their steps and judge every item that it stores.

    * **A, items**: after 120 calls in two lanes, is each stored item the right n-step target for its observation?
    * **B, streams**: the same where the ring has wrapped, and where environments were reset in mid-episode.
    * **C, priorities**: late TD errors, NaN, infinite, negative and zero ones, and slots that were never filled.
    * **D, draws**: does a draw leave the stored arrays alone, are its sums fit for 42 million rows, and does it follow
      the probabilities that the buffer states?
    * **E, threads**: are items whole that one thread draws while another one adds?
    * **F, consumption**: is each stored item drawn, and nothing else; what becomes of values that are written back?

    Args:
        pipeline: What to examine, or a function without arguments that makes it; each probe of tables C to F then gets
            a new one, so that what one NaN has spoilt does not hide what comes after.
        n_steps: Steps of the targets, one or several.
        modes: Gymnasium's autoreset modes or their names, one or several; None: all that the pipeline knows.
        name: What to call it in the report; None: the name of its class or function.

    Returns:
        The report; `report.right` and `report.findings` have the verdict.

    Raises:
        ArgumentError: The pipeline is none, raises when it is run, or knows none of the modes; an argument outside its
            limits.

    Buffers of tensors are examined by pipelines that step `TensorEnvs`.

    What libraries draw from global random generators is put back.

    >>> from relive.doctor import pipelines
    >>> examine(pipelines.named("relive"), n_steps=1, modes=["same_step"]).right
    True
    """
    patient, steps, known, skipped = admit(pipeline, n_steps, modes, name, "examine")
    with generators_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report says what is wrong
        checks = [check for mode in known for n in steps for check in _table_a(patient, mode, n)]
        # Where the loop is right, or has the fewest faults, and each call is a step: what follows is about the buffer.
        best = min(known, key=lambda mode: (_faults_in(mode, checks), mode is AutoresetMode.NEXT_STEP))
        ignored = {check.n_step for check in checks if check.probe == IGNORED and check.wrong}
        steps = [n for n in steps if n not in ignored] or steps
        only = [check for check in checks if check.wrong and check.autoreset_mode == best.name.lower()]
        lost = only and all(check.probe == NO_STEP for check in only) and only[0].wrong > only[0].of // 3
        for table in () if lost else (table_b, table_c, table_d, table_e, table_f, stated_law):
            checks += table(patient, best, steps, checks)
    made = {check.probe for check in checks} | {IGNORED}
    reasons = dict.fromkeys(wants(probe, made) for probe in CATALOGUE if probe not in made)
    left = [reason for reason in reasons if patient.threaded or "threads" not in reason]
    return Report(patient.name, tuple(checks), (*skipped, *left))


def admit(
    pipeline: Any, n_steps: Any, modes: Any, name: str | None, at: str
) -> tuple[Patient, list[int], list[AutoresetMode], list[str]]:
    """Return the pipeline as a patient, each n, the modes that it knows of those asked for, and what is left out.

    Raises:
        ArgumentError: The pipeline is none, or knows none of the modes; an argument outside its limits.
    """
    word = name or str(getattr(pipeline, "__name__", type(pipeline).__name__))
    makes: Any = pipeline if _makes(pipeline) else lambda: pipeline
    patient = Patient(makes, word)
    steps = [_step(n, at) for n in ([n_steps] if isinstance(n_steps, int) else n_steps)]
    given = patient.modes if modes is None else [modes] if isinstance(modes, str | AutoresetMode) else modes
    wanted = list(dict.fromkeys(mode_of(mode) for mode in given))
    known = [mode for mode in wanted if mode in patient.modes]
    if not known or not steps:
        what = f"at least one of {', '.join(f'`{mode.name.lower()}`' for mode in patient.modes)}"
        got = ", ".join(f"`{mode.name.lower()}`" for mode in wanted) or "none"
        raise ArgumentError(message(what if steps else "at least one n", got if steps else "none", f"{word}(modes)"))
    left = [mode.name.lower() for mode in wanted if mode not in known]
    return patient, steps, known, [f"autoreset mode {mode}: the pipeline does not know it" for mode in left]


def _table_a(patient: Patient, mode: AutoresetMode, n_step: int) -> Iterator[Finding]:
    patient.renew()
    patient.run(CALLS, n_step, mode)
    items = patient.items()
    faults, of, longer = judge(items, patient.world, n_step), max(len(items), 1), list[str]()
    if n_step > 1:
        if _of_length(faults) and not _of_length(single := judge(items, patient.world, 1)):  # one-step targets
            longer, faults = [fault.text for fault in faults if fault.probe == REWARD], single
        shown = longer[0] if longer else ""
        yield Finding.of_probe(IGNORED, "A", mode, n_step, len(longer), of, shown, _LONGER)
    kinds = {fault.probe for fault in faults}
    if len(kinds) >= _MANY and (
        NO_STEP in kinds or {PHANTOM, MISSING, REWARD} <= kinds
    ):  # the observations themselves are wrong, and all else follows
        faults = [fault._replace(probe=NO_STEP) for fault in faults]
    for probe in PROBES:
        texts = [fault.text for fault in faults if fault.probe == probe]
        yield Finding.of_probe(probe, "A", mode, n_step, len(texts), of, texts[0] if texts else "", REMEDIES[probe])


def _of_length(faults: Iterable[Fault]) -> bool:
    """Return whether windows may be longer or shorter than they should."""
    return any(fault.probe in (REWARD, DISCOUNT) for fault in faults)


def _faults_in(mode: AutoresetMode, checks: Iterable[Finding]) -> int:
    return sum(check.wrong for check in checks if check.autoreset_mode == mode.name.lower())


def _makes(pipeline: Any) -> bool:
    """Return whether it makes pipelines, and is none itself."""
    return callable(pipeline) and (isinstance(pipeline, type) or not isinstance(pipeline, Pipeline))


def _step(n: Any, at: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= 50:
        raise ArgumentError(message("integers from 1 to 50", f"`{n}`", f"{at}(n_steps)"))
    return int(n)


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Put the states of the global generators back, which some libraries draw from."""
    legacy, plain = np.random.get_state(), random.getstate()
    torch = sys.modules.get("torch")
    tensor = torch.get_rng_state() if torch else None
    devices = torch.cuda.get_rng_state_all() if torch and torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        np.random.set_state(legacy)
        random.setstate(plain)
        if torch:
            torch.set_rng_state(tensor)
        if torch and devices:
            torch.cuda.set_rng_state_all(devices)
