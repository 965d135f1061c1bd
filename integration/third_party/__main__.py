"""Run the tests of other projects, and hold the results against their ledgers.

Exit status 1: something differs from a ledger. Logs are kept in the output folder; with
``--resume`` a run continues from there.
"""

import argparse
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from integration.third_party import ledger_files
from integration.third_party.environments import environment_of, folder_of
from integration.third_party.figures import Figures, table
from integration.third_party.projects import GROUPS, Project, version_of
from integration.third_party.suite import run_project
from integration.validates_runner.ledger import (
    Expectations,
    Verdict,
    judge,
    settled,
    surprises,
    surprises_elsewhere,
)
from integration.validates_runner.run import Result
from integration.validates_runner.runners import FN_API, IN_PROCESS, NOTHING, SPARK_EMBEDDED
from integration.validates_runner.suites import ROOT

OURS = (IN_PROCESS, SPARK_EMBEDDED)


def main() -> int:
    """Parse the command line, run, print, compare."""
    parser = argparse.ArgumentParser(prog="python -m integration.third_party")
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; else all")
    parser.add_argument("--project", help="only this one of the groups")
    parser.add_argument("--runner", choices=OURS, help="only this of our two ways to run")
    parser.add_argument("--only", help="pytest's -k; then nothing is compared")
    parser.add_argument("--resume", action="store_true", help="continue with the last run's logs")
    parser.add_argument("--print-lists", action="store_true", help="of tests without our runner")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "third_party")
    given = parser.parse_args()
    # The processes of tests are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if unknown := set(given.groups) - set(GROUPS):
        parser.error(f"no such group: {', '.join(sorted(unknown))}")
    given.out = given.out.resolve()  # pytest runs in that folder
    given.out.mkdir(parents=True, exist_ok=True)
    runners = (given.runner,) if given.runner else OURS
    differences: list[str] = []
    figures: dict[str, Figures] = {}
    for group in given.groups or GROUPS:
        for project in GROUPS[group]:
            if given.project in (None, project.name):
                run = _Run(project, group, given)
                figures[project.name], found = run.compared(runners)
                differences += found
    print("\n" + table(figures, runners))
    for line in differences:
        print(line)
    if given.only:
        return 0
    print(f"{len(differences)} difference(s) from the ledgers")
    return 1 if differences else 0


@dataclass
class _Run:
    """One project's tests, on several runners."""

    project: Project
    group: str
    given: argparse.Namespace
    python: Path = field(init=False)
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.python = environment_of(self.group)
        self.folder = folder_of(self.project, self.group, self.python)

    def compared(self, runners: Sequence[str]) -> tuple[Figures, list[str]]:
        """Return the verdicts, and a line for whatever differs from the ledger."""
        nothing = self._on(NOTHING)
        known = settled(nothing)
        peer = judge(self._on(FN_API, known=known), nothing)
        verdicts = {FN_API: peer}
        differences = []
        for runner in runners:
            results = self._on(runner, known=known)
            verdicts[runner] = judge(results, nothing)
            if self.given.only:
                differences += _shown(results, verdicts[runner], runner)
                continue
            if self.given.print_lists:
                print(ledger_files.lists(verdicts[runner]))
            lines = self._differences(results, nothing, verdicts, runner)
            differences += [f"{self.project.name} on {runner}: {line}" for line in lines]
        return Figures(verdicts), differences

    def _differences(
        self,
        results: Mapping[str, Result],
        nothing: Mapping[str, Result],
        verdicts: Mapping[str, Mapping[str, Verdict]],
        runner: str,
    ) -> list[str]:
        """Return what differs from the ledger; where there is none, from the peer."""
        if not self.project.ledger.exists():
            return [
                f"{test}: passes on {FN_API} alone: {results[test].message}"
                for test in Figures(verdicts).only_on_peer(runner)
                if test in results
            ]
        version = version_of(self.project, self.group)
        expected = ledger_files.load(self.project.ledger, version, runner)
        return [
            *surprises(results, verdicts[runner], expected, is_whole=True),
            *self._elsewhere(results, nothing, expected),
        ]

    def _elsewhere(
        self,
        results: Mapping[str, Result],
        nothing: Mapping[str, Result],
        expected: Expectations,
    ) -> list[str]:
        """Run failing tests again on the runner where the ledger says that they pass."""
        lines: list[str] = []
        for runner in sorted(set(expected.passes_on.values())):
            tests = [
                test
                for test, result in results.items()
                if result.outcome == "failed" and expected.passes_on.get(test) == runner
            ]
            if tests:
                again = self._on(runner, tests=tests)
                lines += surprises_elsewhere(again, judge(again, nothing), expected)
        return lines

    def _on(
        self,
        runner: str,
        *,
        tests: Sequence[str] = (),
        known: Mapping[str, Result] | None = None,
    ) -> dict[str, Result]:
        log = self.given.out / f"{self.project.name}-on-{runner}.jsonl"
        if not self.given.resume:
            log.unlink(missing_ok=True)
            log.with_suffix(".out").unlink(missing_ok=True)
        began = time.monotonic()
        results = run_project(
            self.project,
            self.python,
            self.folder,
            runner,
            log,
            tests=tests,
            only=self.given.only,
            known=known or {},
        )
        print(f"{self.project.name} on {runner}: {time.monotonic() - began:.0f} s", flush=True)
        return results


def _shown(
    results: Mapping[str, Result], verdicts: Mapping[str, Verdict], runner: str
) -> list[str]:
    return [
        f"{verdict.value} on {runner}: {test}: {results[test].message}"
        for test, verdict in verdicts.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
