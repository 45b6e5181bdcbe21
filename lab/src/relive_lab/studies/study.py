"""A study: arms that share seeds, their curves, what is said about them, and the files that hold it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

import relive_lab as lab
from relive.errors import NotEnoughData, PriorityError
from relive_lab import TrainerConfig, TrainResult
from relive_lab import statistics as st
from relive_lab.statistics import Estimate
from relive_lab.studies.arms import Arm
from relive_lab.studies.conduct import Bar, at_least, conduct, new_figure, write_files
from relive_lab.studies.runner import Outcome, Report, Work
from relive_lab.studies.verdict import verdict

if TYPE_CHECKING:
    from relive_lab.td3 import TD3Config

Array = npt.NDArray[np.float64]
Evaluator = Callable[[Callable[[Any], Any]], Any]
BAND_RESAMPLES = 2_000
QUICK_SEEDS = 6  # enough for a verdict


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runs:
    """Seeds and processes of a comparison."""

    seeds: int = 10
    """Seeds in each arm; one seed gives the same initial weights and environment in all arms."""
    first_seed: int = 0
    """The first seed; the others follow."""
    quick: bool = False
    """At most 6 seeds: a sooner answer, with wide intervals."""
    jobs: int = os.cpu_count() or 1
    """Processes at a time; one for each processor unless given."""

    def chosen(self) -> range:
        """Return the seeds to run."""
        at_least(self, first_seed=0, seeds=1, jobs=1)
        return range(self.first_seed, self.first_seed + (min(self.seeds, QUICK_SEEDS) if self.quick else self.seeds))


DEFAULT_RUNS = Runs()


@dataclasses.dataclass(frozen=True)
class Job:
    """A training run: an arm of a study under one seed; `evaluator` must be picklable.

    With `diagnose`, the noise in its TD errors is measured at its end.
    """

    arm: str
    seed: int
    config: TrainerConfig | TD3Config
    evaluator: Evaluator | None = None
    diagnose: bool = False

    @property
    def label(self) -> str:
        """The name of the run."""
        return f"{self.arm}, seed {self.seed}"

    @property
    def cost(self) -> float:
        """Environment steps."""
        return float(self.config.total_steps)


def trainer_of(config: object) -> Any:
    """Return the class that trains by settings of this kind; PyTorch is loaded with it."""
    return getattr(lab, type(config).__name__.removesuffix("Config") + "Trainer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagnosed(TrainResult):
    """The result of a run, and the share of its squared TD error that was noise at its end."""

    noise: float


def train(job: Job, report: Report) -> tuple[TrainResult, bool]:
    """Do one run; return its result, and whether it came to its end."""
    trainer = trainer_of(job.config)(job.config, evaluator=job.evaluator)
    result: TrainResult = trainer.train(lambda now: report(now.step / now.total_steps, f"return {now.eval_return:.3g}"))
    trainer.close()
    if len(result.eval_returns):
        last = f"return {result.eval_returns[-1].mean():.3g} after {result.steps} steps, {result.seconds:.0f} s"
        report(result.steps / job.config.total_steps, last)
    complete = result.steps >= job.config.total_steps
    if job.diagnose and complete:
        # A run that is too short to diagnose is a result all the same.
        with contextlib.suppress(NotEnoughData, PriorityError):
            share = lab.noise_share(trainer.buffer, trainer.td_error).share.value
            return Diagnosed(**vars(result), noise=share), complete
    return result, complete


Measure = Callable[[Sequence[TrainResult]], tuple[Array, Array] | None]
Configure = Callable[[str, int], "TrainerConfig | TD3Config"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """The subject of a study, and the reading of its results.

    Attributes:
        title: Heading of table and picture.
        arms: All arms.
        baseline: The arm that sets the threshold and that the others are compared with.
        unit: What time is counted in: `episodes` or `steps`.
        metric: What is measured.
        digits: How it is formatted; None decides by its size.
        measure: Times `[P]` and values `[N, P]` of N runs' curves, as long as the shortest; None: there is none.
        last: Points at a curve's end whose mean is the run's final value.
        threshold: Value to reach; None is 90 % of the baseline's final interquartile mean.
        reference: Name and value of a fixed policy to draw beside the curves.
        judge: Bars that the final values, by arm, should keep.
        explain: Arms, by name, of which a line says what their difference means; the baseline's runs are diagnosed.
        settings: Everything that decides the numbers, for the file.
    """

    title: str
    arms: tuple[str, ...]
    baseline: str
    unit: str
    metric: str = "return"
    digits: str | None = None
    measure: Measure
    last: int = 5
    threshold: float | None = None
    reference: tuple[str, float] | None = None
    judge: Callable[[dict[str, Array]], list[Bar]] = lambda finals: []
    explain: Mapping[str, Arm] = dataclasses.field(default_factory=dict)
    settings: dict[str, Any]

    def run(
        self,
        runs: Runs,
        configure: Configure,
        out: Path,
        evaluator: Evaluator | None = None,
        work: Work[Job] = train,
    ) -> int:
        """Run all arms under all seeds, report, and return the exit status; `configure` gives an arm's settings."""
        jobs = [
            Job(arm, seed, configure(arm, seed), evaluator, bool(self.explain) and arm == self.baseline)
            for seed in runs.chosen()
            for arm in self.arms
        ]
        return conduct(self.title, jobs, work, runs.jobs, self.curves, out)

    def curves(self, outcomes: Sequence[Outcome[Job]]) -> Curves | None:
        """Return the curves of the seeds that every arm has: of whole runs, or else of what was reached."""
        found: dict[int, dict[str, Outcome[Job]]] = {}
        for outcome in outcomes:
            if outcome.result is not None and self.measure([outcome.result]) is not None:
                found.setdefault(outcome.task.seed, {})[outcome.task.arm] = outcome
        everywhere = {seed: arms for seed, arms in sorted(found.items()) if len(arms) == len(self.arms)}
        whole = {seed: arms for seed, arms in everywhere.items() if all(run.complete for run in arms.values())}
        chosen = whole or everywhere
        runs = [arms[arm].result for arm in self.arms for arms in chosen.values()]
        measured = self.measure(runs) if runs else None
        if measured is None:
            return None
        values = dict(zip(self.arms, measured[1].reshape(len(self.arms), len(chosen), -1), strict=True))
        seconds = {arm: float(np.mean([arms[arm].result.seconds for arms in chosen.values()])) for arm in self.arms}
        base = (arms[self.baseline].result for arms in chosen.values())
        noise = [run.noise for run in base if isinstance(run, Diagnosed)]
        return Curves(self, list(chosen), bool(whole), measured[0], values, seconds, noise)


def evaluations(steps_per_unit: int = 1) -> Measure:
    """Measure mean evaluation returns, at times in units of that many environment steps."""

    def measure(runs: Sequence[TrainResult]) -> tuple[Array, Array] | None:
        length = min(len(run.eval_steps) for run in runs)
        if not length:
            return None
        values = np.array([run.eval_returns[:length].mean(axis=1) for run in runs])
        return runs[0].eval_steps[:length] / steps_per_unit, values

    return measure


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """One arm's figures; those that compare it with the baseline are None in the baseline's own."""

    arm: str
    finals: list[float]
    final: Estimate
    median_time: float
    never: int
    seconds: float
    better: Estimate | None
    difference: Estimate | None
    area_difference: Estimate | None
    sooner: Estimate | None


@dataclasses.dataclass(frozen=True)
class Curves:
    """The curves of the same seeds in every arm of a study.

    Attributes:
        study: What they belong to.
        seeds: The seeds, in order.
        complete: Whether these are whole runs.
        times: When each point was measured, float64 `[P]`.
        values: By arm, float64 `[S, P]`.
        seconds: By arm, mean wall-clock seconds of a run.
        noise: Shares of the squared TD error that were noise at the end of the baseline's runs, where measured.
    """

    study: Study
    seeds: list[int]
    complete: bool
    times: Array
    values: dict[str, Array]
    seconds: dict[str, float]
    noise: list[float] = dataclasses.field(default_factory=list)

    @property
    def finals(self) -> dict[str, Array]:
        """Final values of the runs of each arm, float64 `[S]`."""
        return {arm: st.final(values, self.study.last) for arm, values in self.values.items()}

    @property
    def bars(self) -> list[Bar]:
        """The bars that the study should reach, with its values."""
        return self.study.judge(self.finals)

    @property
    def threshold(self) -> float:
        """The value that counts as learned, the same for every arm."""
        fixed = self.study.threshold
        return 0.9 * float(st.iqm(self.finals[self.study.baseline])) if fixed is None else fixed

    def figures(self) -> list[Figures]:
        """Return the figures of every arm."""
        base, finals, limit = self.study.baseline, self.finals, self.threshold
        # Sooner is better: negative times.
        soon = {arm: -st.time_to_threshold(self.times, values, limit) for arm, values in self.values.items()}
        areas = {arm: values.mean(axis=1) for arm, values in self.values.items()}
        return [
            Figures(
                arm=arm,
                finals=finals[arm].tolist(),
                final=st.interval(finals[arm]),
                median_time=-float(np.median(soon[arm])),
                never=int(np.isinf(soon[arm]).sum()),
                seconds=self.seconds[arm],
                better=st.probability_of_improvement(finals[arm], finals[base]) if arm != base else None,
                difference=st.paired_difference(finals[arm], finals[base]) if arm != base else None,
                area_difference=st.paired_difference(areas[arm], areas[base]) if arm != base else None,
                sooner=st.probability_of_improvement(soon[arm], soon[base]) if arm != base else None,
            )
            for arm in self.study.arms
        ]

    def verdicts(self) -> list[str]:
        """Return a line for every arm but the baseline: what its difference in the final value means."""
        study, finals = self.study, self.finals
        base, what = finals[study.baseline], f"final {study.metric}"
        lines = []
        for name, arm in study.explain.items():
            if name != study.baseline:
                difference = st.paired_difference(finals[name], base)
                signal = arm.signal.format(share=f"{100 * np.mean(self.noise):.0f} %") if self.noise else ""
                lines.append(verdict(arm.subject, what, difference, float(base.mean()), len(self.seeds), signal))
        return lines

    def shown(self) -> list[RenderableType]:
        """Return one table: a column for each arm, comparisons with the baseline below."""
        study, limit, found, finals = self.study, self.threshold, self.figures(), self.finals
        digits = study.digits or (".3f" if np.abs(finals[study.baseline]).max() < 10 else ".1f")
        partial = "" if self.complete else f", stopped at {self.times[-1]:g} {study.unit}"
        table = Table(title=f"{study.title}: {self._count}{partial}", title_justify="left", caption_justify="left")
        table.add_column("95 % intervals")
        for arm in found:
            table.add_column(arm.arm, justify="right")
        separator = " " if len(found) < 3 else "\n"  # 80 characters hold two intervals side by side

        def add(label: str, estimates: list[Estimate | None], spec: str) -> None:
            table.add_row(label, *(Text(e.text(spec, separator) if e else "-") for e in estimates))

        add(f"final {study.metric}, IQM", [arm.final for arm in found], digits)
        table.add_row("worst to best seed", *(f"{min(f):{digits}} to {max(f):{digits}}" for f in finals.values()))
        medians = (f"{arm.median_time:g}" if math.isfinite(arm.median_time) else "-" for arm in found)
        table.add_row(f"{study.unit} to {limit:{digits}}, median", *medians)
        table.add_row("never reached it", *(f"{arm.never} of {len(self.seeds)}" for arm in found))
        table.add_row("seconds a run", *(f"{arm.seconds:.0f}" for arm in found), end_section=True)
        add(f"final {study.metric}, difference", [arm.difference for arm in found], "+" + digits)
        add("mean curve, difference", [arm.area_difference for arm in found], "+" + digits)
        add(f"P(higher final {study.metric})", [arm.better for arm in found], ".2f")
        add("P(reached it sooner)", [arm.sooner for arm in found], ".2f")
        table.caption = f"Differences and P are against {study.baseline}; seeds are paired."
        if study.reference is not None:
            table.caption += f"\nFor scale: {study.reference[0]} earns {study.reference[1]:{digits}}."
        return [table, *(Text(line) for line in self.verdicts())]

    @property
    def _count(self) -> str:
        return "1 seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"

    def write(self, folder: Path) -> list[Path]:
        """Write `curves.png`, `curves.csv` and `summary.json`, and return their paths."""
        study, limit = self.study, self.threshold
        lines = (
            (arm, seed, f"{time:g}", repr(float(value)))
            for arm, values in self.values.items()
            for seed, run in zip(self.seeds, values, strict=True)
            for time, value in zip(self.times, run, strict=True)
        )
        summary = {"title": study.title, "settings": study.settings, "seeds": self.seeds, "complete": self.complete}
        summary |= {"threshold": limit, "reference": study.reference, "bars": self.bars, "arms": self.figures()}
        summary |= {"noise_share": self.noise, "verdicts": self.verdicts()}
        figure, axes = new_figure()
        for arm, values in self.values.items():
            points = [st.interval(column, resamples=BAND_RESAMPLES) for column in values.T]
            line = axes.plot(self.times, [point.value for point in points], label=arm)[0]
            band = ([point.low for point in points], [point.high for point in points])
            axes.fill_between(self.times, *band, color=line.get_color(), alpha=0.2, linewidth=0)
        axes.axhline(limit, color="grey", linestyle="--", linewidth=0.8, label=f"threshold {limit:.3g}")
        if study.reference is not None:
            axes.axhline(study.reference[1], color="black", linestyle=":", linewidth=0.8, label=study.reference[0])
        axes.set(xlabel=f"training {study.unit}", ylabel=f"{study.metric}: IQM and 95 % interval")
        axes.set_title(f"{study.title}: {self._count}")
        axes.legend(frameon=False)
        return write_files(folder, "curves", ["arm", "seed", study.unit, study.metric], lines, summary, figure)
