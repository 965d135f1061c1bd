"""The pytest plugin that runs a suite on a runner and writes one line of JSON per test."""

import contextlib
import importlib.util
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam
import pytest

from integration.validates_runner import runners
from integration.validates_runner.assertions import Watch
from integration.validates_runner.suites import ROOT

_BEAM = Path(apache_beam.__file__).parent
_MESSAGE_LENGTH = 500


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the suite's process."""
    group = parser.getgroup("conformance")
    group.addoption("--conformance-runner", required=True)
    group.addoption("--conformance-log", required=True, type=Path)
    group.addoption("--conformance-in-place-of", action="append", default=[])
    group.addoption("--conformance-root", type=Path, help="ids of tests name files from there on")
    group.addoption("--conformance-remembers", action="store_true", help="ask Beam once")
    group.addoption("--conformance-options", default=None, help="pipeline options of TestPipeline")


def pytest_configure(config: pytest.Config) -> None:
    """Install the runner before any test module is imported."""
    from apache_beam.testing.test_pipeline import TestPipeline

    runners.install(
        config.getoption("--conformance-runner"),
        in_place_of=config.getoption("--conformance-in-place-of"),
    )
    if config.getoption("--conformance-remembers"):
        _remember()
    TestPipeline.pytest_test_pipeline_options = config.getoption("--conformance-options")
    roots = [each for each in (config.getoption("--conformance-root"),) if each]
    recorder = Recorder(config.getoption("--conformance-log"), (*roots, _BEAM.parent, ROOT))
    config.pluginmanager.register(recorder, "conformance-recorder")


def _remember() -> None:
    """Call ``tests.beam_once.remember``. Other projects have a package ``tests``, too."""
    spec = importlib.util.spec_from_file_location("beam_once", ROOT / "tests" / "beam_once.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.remember()


class Recorder:
    """Writes ``{"started": test}`` and then ``{"test": …, "outcome": …}``, at once each.

    Tests that the log already knows are left out: a run continues where the last one broke off.
    """

    def __init__(self, log: Path, roots: Sequence[Path]) -> None:
        self._log = log
        self._roots = roots
        self._done = {
            line.get("test")
            for line in map(json.loads, log.read_text().splitlines() if log.exists() else [])
        }
        self._watch = Watch()
        self._watch.install()
        self._reports: list[Any] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        left_out = [item for item in items if test_id(item, self._roots) in self._done]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if test_id(item, self._roots) not in self._done]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome == "passed":
            return
        outcome = "skipped" if report.outcome == "skipped" else "failed"
        test = test_id(report, self._roots)
        if test not in self._done:
            self._write(test=test, outcome=outcome, message=_message([report]), seconds=0.0)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        test = test_id(item, self._roots)
        self._write(started=test)
        self._watch.reset()
        self._reports = []
        started = time.monotonic()
        result = yield
        self._watch.stop_pipelines()
        outcome, message = _outcome(self._reports), _message(self._reports)
        if outcome == "passed" and (labels := self._watch.unsatisfied()):
            outcome, message = "failed", f"never checked: {', '.join(labels)}"
        self._write(
            test=test,
            outcome=outcome,
            message=message,
            seconds=round(time.monotonic() - started, 2),
            drives_runner=self._watch.drives_runner,
            other_runners=self._watch.other_runners,
        )
        if runners.spark_has_died():
            os._exit(1 << 6)  # the next tests need a process with a Spark that lives
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def _write(self, **line: Any) -> None:
        with self._log.open("a") as log:
            print(json.dumps(line), file=log)


def test_id(node: Any, roots: Sequence[Path]) -> str:
    """Return the node's id, from one of the roots on.

    Args:
        node: a test, or the report of a module that could not be collected.
        roots: folders; the first that has the test's file counts.
    """
    path, _, name = node.nodeid.partition("::")
    for root in roots:
        with contextlib.suppress(ValueError):
            path = str(getattr(node, "path", root / path).relative_to(root))
            break
    return f"{path}::{name}" if name else path


def _outcome(reports: list[Any]) -> str:
    outcomes = {report.outcome for report in reports}
    if "failed" in outcomes or not outcomes:
        return "failed"
    return "skipped" if "skipped" in outcomes else "passed"


def _message(reports: list[Any]) -> str:
    for report in reports:
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else str(report.longrepr)
            return " ".join(text.split())[:_MESSAGE_LENGTH]
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            return str(report.longrepr[2])[:_MESSAGE_LENGTH]
    return ""
