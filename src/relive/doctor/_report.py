"""The report of an examination."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode

from relive._base.frozen import Frozen


class Finding(Frozen):
    """One probe of one table, in one autoreset mode and for one n.

    Attributes:
        probe: What was looked for, such as `"phantom step"`.
        table: `"A"` (items), `"B"` (streams), `"C"` (priorities), `"D"` (draws) or `"E"` (threads).
        autoreset_mode: `"next_step"`, `"same_step"` or `"disabled"`.
        n_step: Steps of the n-step target.
        wrong: How many were wrong; 0: the probe passes.
        of: Of how many.
        example: The one item that shows it, or what happened; empty where nothing is wrong.
        remedy: What to change; empty where nothing is wrong.

    >>> Finding("wrong reward", "A", "disabled", 1, wrong=0, of=240).wrong
    0
    """

    probe: str
    table: str
    autoreset_mode: str
    n_step: int
    wrong: int
    of: int
    example: str = ""
    remedy: str = ""

    @classmethod
    def of_probe(
        cls, probe: str, table: str, mode: AutoresetMode, n_step: int, wrong: int, of: int, example: str, remedy: str
    ) -> Finding:
        """Make the finding of a probe, with its example and remedy where something is wrong."""
        shown = (example, remedy) if wrong else ("", "")
        return cls(probe, table, mode.name.lower(), n_step, wrong, of, *shown)


Outcome = tuple[list[Finding], list[str]]  # the checks of a table, and what was left out


class Report(Frozen):
    """The verdict on a pipeline.

    Attributes:
        pipeline: Its name.
        checks: Every probe that was made, also those that pass.
        skipped: Why a probe or a table was left out.

    >>> passed = Finding("wrong reward", "A", "disabled", 1, wrong=0, of=240)
    >>> Report("mine", (passed,), ()).right
    True
    """

    pipeline: str
    checks: tuple[Finding, ...]
    skipped: tuple[str, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The probes that found something wrong."""
        return tuple(check for check in self.checks if check.wrong)

    @property
    def right(self) -> bool:
        """True if the examination found no fault."""
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON: `pipeline`, `right`, `findings`."""
        return {
            "pipeline": self.pipeline,
            "right": self.right,
            "findings": [dict(vars(finding)) for finding in self.findings],
        }

    def table(self, name: str) -> tuple[list[str], list[list[str]]]:
        """Return the titles and the rows of a table; in A a cell has a number for each n, as `0 / 52`.

        Args:
            name: `"A"` to `"E"`.
        """
        checks = [check for check in self.checks if check.table == name]
        if name != "A":
            return ["probe", "autoreset", "n", "wrong", "of"], [
                [check.probe, check.autoreset_mode, f"{check.n_step}", f"{check.wrong}", f"{check.of}"]
                for check in checks
            ]
        modes = list(dict.fromkeys(check.autoreset_mode for check in checks))
        rows = {"items": {mode: list[str]() for mode in modes}}
        for check in checks:
            row = rows.setdefault(check.probe, {mode: [] for mode in modes})
            row[check.autoreset_mode].append(f"{check.wrong}")
            if check.probe == checks[0].probe:
                rows["items"][check.autoreset_mode].append(f"{check.of}")
        steps = " / ".join(f"{n}" for n in dict.fromkeys(check.n_step for check in checks))
        return [f"wrong for n = {steps}", *modes], [
            [probe, *(" / ".join(row[mode]) for mode in modes)] for probe, row in rows.items()
        ]
