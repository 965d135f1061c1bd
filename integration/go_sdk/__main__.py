"""Run Go's tests against a job server, and hold the results against the ledger.

Exit status 1: something differs from ``expectations.toml``. What each test has said is in the
output folder, with its result as one line of JSON; ``--resume`` goes on from there.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import apache_beam

from integration.go_sdk import ledger
from integration.go_sdk.programs import PACKAGES, build, sources, tests_of
from integration.go_sdk.run import Client, Outcome, Verdict, client_of, run_test
from integration.job_server import start_job_server

_ROOT = Path(__file__).parents[2]


def main() -> int:
    """Parse the command line, build, run, print, compare."""
    parser = argparse.ArgumentParser(prog="python -m integration.go_sdk")
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)}; else all")
    parser.add_argument("--only", default="", help="tests whose names contain this")
    parser.add_argument("--endpoint", help="a job server that runs already")
    parser.add_argument("--timeout", type=float, default=180.0, help="of a test, in seconds")
    parser.add_argument("--resume", action="store_true", help="go on with the last run")
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
    outcomes: dict[str, Outcome] = {}
    with client_of(url) as client:
        for package in given.packages or PACKAGES:
            outcomes |= _run_package(package, beam, url, client, given, results)
    print(f"\n{_counted(outcomes)}")
    is_whole = not given.packages and not given.only
    differences = list(ledger.surprises(outcomes, expected, is_whole=is_whole))
    for line in differences:
        print(line)
    print(f"{len(differences)} difference(s) from {ledger.EXPECTATIONS.name}")
    return 1 if differences else 0


def _run_package(
    package: str,
    beam: Path,
    url: str,
    client: Client,
    given: argparse.Namespace,
    results: Path,
) -> dict[str, Outcome]:
    program = build(package, beam, results.parent)
    known = _read(results)
    short = package.removeprefix("go/")
    outcomes: dict[str, Outcome] = {}
    for test in tests_of(program, beam / package):
        name = f"{short}/{test}"
        if given.only not in test:
            continue
        if name not in known:
            log = results.parent / f"{name.replace('/', '.')}.log"
            began = time.monotonic()
            known[name] = run_test(program, beam / package, test, url, client, given.timeout, log)
            _note(results, name, known[name])
            seconds = time.monotonic() - began
            print(f"{known[name].verdict.value}: {name} ({seconds:.1f} s)", flush=True)
        outcomes[name] = known[name]
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
