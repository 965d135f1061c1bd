"""Run Go's tests against a job server, and hold the results against the ledger.

Exit status 1: something differs from ``expectations.toml``. What each test has said is in the
output folder, with its result as one line of JSON; ``--resume`` continues from there.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import apache_beam

from integration.go_sdk import ledger
from integration.go_sdk.programs import PACKAGES, build, sources, tests_of
from integration.go_sdk.run import Client, Outcome, Verdict, client_of, run_test
from integration.job_server import start_job_server

_ROOT = Path(__file__).parents[2]
_ONE_AT_A_TIME = Lock()
"""Lines of the results, and those that are printed."""


def main() -> int:
    """Parse the command line, build, run, print, compare."""
    parser = argparse.ArgumentParser(prog="python -m integration.go_sdk")
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)}; else all")
    parser.add_argument("--only", default="", help="tests whose names contain this")
    parser.add_argument("--endpoint", help="a job server that runs already")
    parser.add_argument("--timeout", type=float, default=180.0, help="of a test, in seconds")
    parser.add_argument("--processes", type=int, default=2, help="tests side by side")
    parser.add_argument("--resume", action="store_true", help="continue the last run")
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "go")
    given = parser.parse_args()
    unknown = set(given.packages) - set(PACKAGES)
    if unknown:
        parser.error(f"no such package: {', '.join(sorted(unknown))}")
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = out / "results.jsonl"
    if not given.resume:
        results.unlink(missing_ok=True)
    version = apache_beam.__version__
    expected = ledger.load(version)
    beam = sources(version)
    url = given.endpoint or start_job_server()
    packages = given.packages or PACKAGES
    outcomes: dict[str, Outcome] = {}
    # Compilers have a separate thread: the next program is made while tests run.
    with client_of(url) as client, ThreadPoolExecutor(1) as builder:
        programs = {each: builder.submit(build, each, beam, out) for each in packages}
        with ThreadPoolExecutor(given.processes) as pool:
            for package, program in programs.items():
                suite = _Suite(package, program.result(), beam / package)
                outcomes |= _run_suite(suite, url, client, given, results, pool)
    print(f"\n{_counted(outcomes)}")
    is_whole = not given.packages and not given.only
    differences = list(ledger.surprises(outcomes, expected, is_whole=is_whole))
    for line in differences:
        print(line)
    print(f"{len(differences)} difference(s) from {ledger.EXPECTATIONS.name}")
    return 1 if differences else 0


class _Suite(NamedTuple):
    """The tests of a package, their program, and the folder that has their data."""

    package: str
    program: Path
    folder: Path


def _run_suite(
    suite: _Suite,
    url: str,
    client: Client,
    given: argparse.Namespace,
    results: Path,
    pool: Executor,
) -> dict[str, Outcome]:
    known = _read(results)
    short = suite.package.removeprefix("go/")
    tests = [test for test in tests_of(suite.program, suite.folder) if given.only in test]

    def run(test: str) -> Outcome:
        name = f"{short}/{test}"
        if name in known:
            return known[name]
        log = results.parent / f"{name.replace('/', '.')}.log"
        began = time.monotonic()
        outcome = run_test(suite.program, suite.folder, test, url, client, given.timeout, log)
        seconds = time.monotonic() - began
        with _ONE_AT_A_TIME:
            _note(results, name, outcome)
            print(f"{outcome.verdict.value}: {name} ({seconds:.1f} s)", flush=True)
        return outcome

    outcomes = {
        f"{short}/{test}": each for test, each in zip(tests, pool.map(run, tests), strict=True)
    }
    print(f"{short}: {_counted(outcomes)}", flush=True)
    return outcomes


def _note(results: Path, name: str, outcome: Outcome) -> None:
    fields = {"verdict": outcome.verdict.value, "why": outcome.why, "jobs": outcome.jobs}
    with results.open("a") as file:
        print(json.dumps({"test": name, **fields}), file=file)


def _read(results: Path) -> dict[str, Outcome]:
    lines = results.read_text().splitlines() if results.exists() else []
    return {
        line["test"]: Outcome(verdict=Verdict(line["verdict"]), why=line["why"], jobs=line["jobs"])
        for line in map(json.loads, lines)
    }


def _counted(outcomes: Mapping[str, Outcome]) -> str:
    counted = Counter(outcome.verdict for outcome in outcomes.values())
    return ", ".join(f"{verdict.value} {counted[verdict]}" for verdict in Verdict)


if __name__ == "__main__":
    sys.exit(main())
