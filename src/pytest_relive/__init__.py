"""`pytest --relive-doctor=module:make`: each check of relive's doctor as a test. relive is imported only then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from relive.doctor import Report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    about = "examine the replay buffer of this pipeline, one test a check; `relive doctor --list` names others"
    group = parser.getgroup("relive")
    group.addoption("--relive-doctor", action="append", default=[], metavar="MODULE:FUNCTION", help=about)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the checks to the tests of this run, before any is deselected."""
    for name in config.getoption("relive_doctor"):
        made: Any = Examination.from_parent(session, name="relive-doctor", nodeid=f"relive-doctor/{name}")
        made.pipeline = name
        items += made.collect()


class Examination(pytest.Collector):
    """The checks of one pipeline, which is run when the first of them is."""

    pipeline = ""
    _report: Report | None = None
    _broken = False

    def collect(self) -> Iterator[pytest.Item]:
        """Yield every check, whether the pipeline allows it or not: the list is the same in all processes."""
        from relive.doctor._catalogue import CATALOGUE

        for probe in CATALOGUE:
            yield Check.from_parent(self, name=probe)

    def report(self) -> Report:
        """Return the report; an examination that fails fails one test, and the others are skipped."""
        from relive.doctor import examine, pipelines
        from relive.errors import ReliveError

        if self._broken:
            pytest.skip("the examination failed")
        if self._report is None:
            n_steps = (1,) if self.pipeline in pipelines.ONE_STEP else (1, 3)
            try:
                self._report = examine(pipelines.named(self.pipeline), n_steps=n_steps, name=self.pipeline)
            except ReliveError as error:
                self._broken = True
                pytest.fail(str(error), pytrace=False)
        return self._report


class Check(pytest.Item):
    """One check, in all modes and for every n."""

    def runtest(self) -> None:
        """Fail where the check found something, and skip where it was not made."""
        from relive.doctor._catalogue import why_not

        parent: Any = self.parent
        report: Report = parent.report()
        made = [check for check in report.checks if check.probe == self.name]
        if not made:
            pytest.skip(why_not(report, self.name))
        wrong = [check for check in made if check.wrong]
        if wrong:
            modes = "; ".join(f"{c.wrong} of {c.of} ({c.autoreset_mode}, n = {c.n_step})" for c in wrong)
            pytest.fail(f"{self.name}: {modes}\n{wrong[0].example}\nremedy: {wrong[0].remedy}", pytrace=False)

    def reportinfo(self) -> tuple[Any, None, str]:
        """Return what a report calls the test."""
        return self.config.rootpath, None, self.nodeid
