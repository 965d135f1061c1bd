"""Run Beam's suites and hold the results against the ledger.

Exit status 1: something differs from ``expectations.toml``. Logs of finished
suites are kept in the output folder; without ``--resume`` they are run anew.
"""

import argparse
import contextlib
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import apache_beam

from integration.validates_runner import expected, table
from integration.validates_runner.ledger import (
    Expectations,
    Verdict,
    judge,
    presumed,
    settled,
    surprises,
    surprises_elsewhere,
)
from integration.validates_runner.run import Result, run_suite, stopping
from integration.validates_runner.runners import (
    DIRECT,
    FN_API,
    NOTHING,
    RUNNERS,
    SPARK_EMBEDDED,
)
from integration.validates_runner.suites import ROOT, SUITES

_PEERS = (FN_API, DIRECT)


def main() -> int:
    """Parse the command line, run, print, compare."""
    parser = argparse.ArgumentParser(prog="python -m integration.validates_runner")
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(SUITES)}; else all")
    parser.add_argument(
        "--quick", action="store_true", help="the suites that `make test` runs, on this runner only"
    )
    parser.add_argument("--runner", default=SPARK_EMBEDDED, choices=sorted(RUNNERS))
    parser.add_argument("--peers", action="store_true", help="FnApiRunner and DirectRunner, too")
    parser.add_argument("--only", help="pytest's -k; then nothing is compared")
    parser.add_argument("--resume", action="store_true", help="go on with the logs of the last run")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "conformance")
    parser.add_argument("--processes", type=int, default=1, help="suites that run side by side")
    parser.add_argument("--write-lists", action="store_true", help="of tests that do not drive us")
    arguments = parser.parse_args()
    unknown = set(arguments.suites) - set(SUITES)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    whole = [name for name, suite in SUITES.items() if not suite.part_of]
    names = arguments.suites or [
        name for name in whole if SUITES[name].is_quick or not arguments.quick
    ]
    runners = [arguments.runner, *(_PEERS if arguments.peers else ())]
    arguments.out = arguments.out.resolve()  # pytest runs in that folder
    arguments.out.mkdir(parents=True, exist_ok=True)

    expectations = expected.load(apache_beam.__version__, arguments.runner)
    results: dict[str, Result] = {}
    verdicts: dict[str, Verdict] = {}
    results_elsewhere: dict[str, Result] = {}
    verdicts_elsewhere: dict[str, Verdict] = {}
    rows = []
    with ThreadPoolExecutor(arguments.processes) as pool, _stopping_on_errors(pool):
        for name, done in zip(
            names,
            pool.map(lambda name: _run_on_all(name, runners, expectations, arguments), names),
            strict=True,
        ):
            rows.append((name, [done.verdicts.get(each) for each in runners], done.judged_again))
            results_elsewhere |= done.again
            verdicts_elsewhere |= done.judged_again
            results |= done.results[arguments.runner]
            verdicts |= done.verdicts[arguments.runner]
    print("\n" + table.render(runners, rows))
    if arguments.only:
        for test, verdict in verdicts.items():
            print(f"{verdict.value}: {test}: {results[test].message}")
        return 0
    if arguments.write_lists:
        expected.write_lists(verdicts)
    differences = [
        *surprises(results, verdicts, expectations, is_whole=names == whole),
        *surprises_elsewhere(results_elsewhere, verdicts_elsewhere, expectations),
    ]
    for line in differences:
        print(line)
    print(f"{len(differences)} difference(s) from {expected.EXPECTATIONS.name}")
    return 1 if differences else 0


@contextlib.contextmanager
def _stopping_on_errors(pool: ThreadPoolExecutor) -> Iterator[None]:
    """Let the first error, or Ctrl-C, end the suites that run; they hear of neither."""
    try:
        yield
    except BaseException:
        stopping.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise


class _Done(NamedTuple):
    """One suite on several runners, each with its results and verdicts by test."""

    results: dict[str, dict[str, Result]]
    verdicts: dict[str, dict[str, Verdict]]
    again: dict[str, Result]  # of tests that ran on another runner once more
    judged_again: dict[str, Verdict]


def _run_on_all(
    name: str, runners: Sequence[str], expectations: Expectations, arguments: argparse.Namespace
) -> _Done:
    """Run a suite on ``DoNothingRunner``, on the first of ``runners``, and on its peers."""
    own, *peers = runners
    if SUITES[name].peers_lack:
        peers = []
    if arguments.quick:
        results = {own: _run(name, own, arguments)}
        nothing = presumed(results[own], expectations)
    else:
        nothing = _run(name, NOTHING, arguments)
        results = {NOTHING: nothing} | {
            runner: _run(name, runner, arguments, known=settled(nothing))
            for runner in (own, *peers)
            if runner != NOTHING
        }
    verdicts = {runner: judge(each, nothing) for runner, each in results.items()}
    again = _run_elsewhere(name, results[own], expectations, arguments)
    return _Done(results, verdicts, again, judge(again, nothing))


def _run_elsewhere(
    name: str,
    results: Mapping[str, Result],
    expectations: Expectations,
    arguments: argparse.Namespace,
) -> dict[str, Result]:
    """Run the failing tests again that are said to pass on another runner, on that one."""
    tests_of = defaultdict(list)
    for test, result in results.items():
        if result.outcome == "failed" and test in expectations.passes_on:
            tests_of[expectations.passes_on[test]].append(test)
    found: dict[str, Result] = {}
    for runner, tests in tests_of.items():
        again = _run(name, runner, arguments, tests=tests)
        found |= {test: again[test] for test in tests}
    return found


def _run(
    name: str,
    runner: str,
    arguments: argparse.Namespace,
    *,
    tests: Sequence[str] = (),
    known: Mapping[str, Result] = MappingProxyType({}),
) -> dict[str, Result]:
    log = arguments.out / f"{name} on {runner}.jsonl".replace("/", ".").replace(" ", "-")
    if not arguments.resume:
        log.unlink(missing_ok=True)
        log.with_suffix(".out").unlink(missing_ok=True)
    started = time.monotonic()
    results = run_suite(
        name,
        runner,
        log,
        only=arguments.only,
        tests=tests,
        known=known,
        remembers=arguments.quick,
    )
    print(f"{name} on {runner}: {time.monotonic() - started:.0f} s", flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
