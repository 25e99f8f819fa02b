"""Names, at the end of a run, tests that take seconds of processor time and are not marked ``slow``.

Durations do not tell: where several tests run at a time, each lasts longer.
"""

from __future__ import annotations

import resource
from collections.abc import Generator

import pytest

SLOW_S = 2.0
LEFT_OUT = {"slow", "redis", "model", "e2e", "docker", "peers"}
"""Marks of what `make test-fast` does not run."""
_NAME = "processor_s"
_BEGAN_S = pytest.StashKey[float]()


def _processor_s() -> float:
    """Of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fixtures of a module count for the test that asks first."""
    item.stash[_BEGAN_S] = _processor_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of the call tells how much it was so far, to the process that sums up."""
    report = yield
    if call.when == "call" and not LEFT_OUT & {mark.name for mark in item.iter_markers()}:
        report.user_properties.append((_NAME, _processor_s() - item.stash[_BEGAN_S]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Those above the limit, the longest first."""
    found = {
        report.nodeid: float(seconds)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, seconds in getattr(report, "user_properties", ())
        if name == _NAME and float(seconds) > SLOW_S
    }
    if found:
        terminalreporter.section(f"over {SLOW_S:g} s of processor time, not marked slow")
    for nodeid, seconds in sorted(found.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"{seconds:6.1f}s {nodeid}")
