"""The report of an examination."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode

from relive._base.frozen import Frozen


class Finding(Frozen):
    """One probe of one table, in one autoreset mode and for one n.

    Attributes:
        probe: What was looked for, such as `"phantom step"`.
        table: `"A"` (items), `"B"` (streams), `"C"` (priorities), `"D"` (draws), `"E"` (threads) or `"F"`
            (consumption).
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


class Bug(Frozen):
    """One fault, over all modes and n that show it.

    Attributes:
        probe: What was looked for.
        also: Further probes that the same items, or the same cause, fail.
        table: The table.
        where: The modes and n that show it, such as `"in all three modes, for n = 3"`; empty where it is so in all.
        wrong: How many were wrong in the first of these.
        of: Of how many.
        example: The smallest item that shows it, or what happened; for one buffer always the same.
        remedy: What to change.

    >>> bug = Bug("phantom step", (), "A", "in NEXT_STEP", 40, 240, "obs 5", "leave it out")
    >>> print(bug)
    phantom step: 40 of 240, in NEXT_STEP
       obs 5
       remedy: leave it out
    """

    probe: str
    also: tuple[str, ...]
    table: str
    where: str
    wrong: int
    of: int
    example: str
    remedy: str

    def __str__(self) -> str:
        counted = f"{self.wrong} of {self.of}" if self.of > 1 else ""
        first = f"{self.probe}: " + ", ".join(filter(None, [counted, self.where]))
        also = [f"   also: {', '.join(self.also)}"] if self.also else []
        return "\n".join([first.removesuffix(": "), *also, f"   {self.example}", f"   remedy: {self.remedy}"])


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
    def bugs(self) -> tuple[Bug, ...]:
        """The findings, each once: what several modes, n or probes show of one fault is one bug."""
        groups: list[list[Finding]] = []
        for finding in self.findings:
            same = [group for group in groups if (group[0].table, group[0].remedy) == (finding.table, finding.remedy)]
            if same:
                same[0].append(finding)
            else:
                groups.append([finding])
        # Probes that fail at the same items show one fault.
        groups.sort(key=len, reverse=True)
        kept: list[list[Finding]] = []
        for group in groups:
            known = [other for other in kept if _cells(group) <= _cells(other)]
            if known:
                known[0].extend(group)
            else:
                kept.append(group)
        order = {check.probe: at for at, check in reversed([*enumerate(self.checks)])}
        return tuple(sorted(map(self._bug, kept), key=lambda bug: order[bug.probe]))

    def _bug(self, group: list[Finding]) -> Bug:
        probes = list(dict.fromkeys(finding.probe for finding in group))
        modes, steps = _distinct(group)
        asked = [check for check in self.checks if check.probe == probes[0]]
        all_modes, all_steps = _distinct(asked)
        words = {1: "", 2: "in both modes", 3: "in all three modes"}
        names = " and ".join(mode.upper() for mode in modes)
        where = [words[len(modes)] if len(modes) == len(all_modes) else f"in {names}"]
        where += [] if len(steps) == len(all_steps) else [f"for n = {' and '.join(map(str, steps))}"]
        first = min(group, key=lambda finding: finding.n_step)
        text = ", ".join(filter(None, where))
        return Bug(probes[0], tuple(probes[1:]), first.table, text, first.wrong, first.of, first.example, first.remedy)

    @property
    def right(self) -> bool:
        """True if the examination found no fault."""
        return not self.findings

    @property
    def verdict(self) -> str:
        """The verdict in a line, such as `5 bugs in mine:make`."""
        many = len(self.bugs)
        if many:
            return f"{many} bug{'s' * (many > 1)} in {self.pipeline}"
        judged = {(check.autoreset_mode, check.n_step): check.of for check in self.checks if check.table == "A"}
        items = sum(judged.values()) + sum(check.of for check in self.checks if check.table == "B")
        return f"no bug in {self.pipeline}: {len(self.checks)} checks of {items:,} items"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON: `pipeline`, `right`, `findings`."""
        return {
            "pipeline": self.pipeline,
            "right": self.right,
            "findings": [dict(vars(finding)) for finding in self.findings],
        }

    def to_badge(self) -> dict[str, Any]:
        """Return the verdict as an endpoint badge of shields.io."""
        many = len(self.bugs)
        shown = f"{many} bug{'s' * (many > 1)}" if many else "no bug found"
        color = "red" if many else "brightgreen"
        return {"schemaVersion": 1, "label": "relive doctor", "message": shown, "color": color}

    def table(self, name: str) -> tuple[list[str], list[list[str]]]:
        """Return the titles and the rows of a table; in A a cell has a number for each n, as `0 / 52`.

        Args:
            name: `"A"` to `"F"`.
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
            if check.probe == "phantom step":
                rows["items"][check.autoreset_mode].append(f"{check.of}")
        steps = " / ".join(f"{n}" for n in dict.fromkeys(check.n_step for check in checks))
        return [f"wrong for n = {steps}", *modes], [
            [probe, *(" / ".join(row[mode]) for mode in modes)] for probe, row in rows.items()
        ]


def _cells(group: list[Finding]) -> set[tuple[object, ...]]:
    return {(f.table, f.autoreset_mode, f.n_step, f.wrong, f.example) for f in group}


def _distinct(checks: list[Finding]) -> tuple[list[str], list[int]]:
    """List the modes and the n of checks."""
    return list(dict.fromkeys(c.autoreset_mode for c in checks)), sorted({c.n_step for c in checks})
