"""Run Java's tests against a job server, and compare the results with the ledger.

Exit status 1: something differs from ``expectations.toml``; 2: the machine lacks a program. The
output folder has what tests print, and their results, one line of JSON each; ``--resume`` continues
from there.
"""

import argparse
import json
import queue
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Lock

from integration.go_sdk import ledger
from integration.go_sdk.run import Client, Outcome, Verdict, client_of
from integration.java_sdk.programs import (
    MissingToolsError,
    TestJvm,
    check_tools,
    class_path,
    jars,
    tests_of,
    version_of,
)
from integration.java_sdk.run import run_test
from integration.job_server import start_job_server

_ROOT = Path(__file__).parents[2]
_FOLDER = Path(__file__).parent
_PACKAGE = "org.apache.beam.sdk."
_ONE_AT_A_TIME = Lock()
"""Lines of the results, and those that are printed."""


def main() -> int:
    """Parse the command line, run, print, compare."""
    parser = argparse.ArgumentParser(prog="python -m integration.java_sdk")
    parser.add_argument("tests", nargs="*", help="CLASS or CLASS#METHOD, the end of it; else all")
    parser.add_argument("--environment", choices=("LOOPBACK", "PROCESS"), default="LOOPBACK")
    parser.add_argument("--endpoint", help="a job server that runs already")
    parser.add_argument("--timeout", type=float, default=180.0, help="of a test, in seconds")
    parser.add_argument("--processes", type=int, default=2, help="JVMs side by side")
    parser.add_argument("--resume", action="store_true", help="continue the last run")
    parser.add_argument("--jars", type=Path, default=_ROOT / "build" / "java" / "jars")
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "java")
    given = parser.parse_args()
    try:
        check_tools()
    except MissingToolsError as error:
        print(error, file=sys.stderr)
        return 2
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = out / f"results_{given.environment.lower()}.jsonl"
    if not given.resume:
        results.unlink(missing_ok=True)
    folder = jars(given.jars.resolve())
    expected = ledger.load(version_of(folder), _FOLDER / "expectations.toml")
    tests = list(chosen((each.removeprefix(_PACKAGE) for each in tests_of(folder)), given.tests))
    if not tests:
        parser.error("no test has such a name")
    known = _read(results)
    url = given.endpoint or start_job_server()
    environment = _environment(given.environment, folder)
    with client_of(url) as client:
        suite = _Suite(folder, url, client, environment, given.timeout, results)
        ran = suite.run([each for each in tests if each not in known], given.processes)
    outcomes = {test: known.get(test) or ran[test] for test in tests}
    print(f"\n{table(outcomes)}\n")
    differences = list(ledger.surprises(outcomes, expected, is_whole=not given.tests))
    for line in differences:
        print(line)
    print(f"{len(differences)} difference(s) from {ledger.EXPECTATIONS.name}")
    return 1 if differences else 0


def chosen(tests: Iterable[str], names: Sequence[str]) -> Iterator[str]:
    """Yield the tests whose class, or class and method, end with one of the names."""
    for test in tests:
        of_class, _, _ = test.partition("#")
        if not names or any(test.endswith(name) or of_class.endswith(name) for name in names):
            yield test


def _environment(kind: str, folder: Path) -> list[str]:
    options = [f"--defaultEnvironmentType={kind}"]
    if kind == "PROCESS":
        command = f"{_FOLDER / 'harness.sh'} {class_path(folder)}"
        options.append(f"--defaultEnvironmentConfig={json.dumps({'command': command})}")
    return options


class _Suite:
    """What all tests of a run have in common."""

    def __init__(
        self,
        jars: Path,
        url: str,
        client: Client,
        environment: Sequence[str],
        timeout_s: float,
        results: Path,
    ) -> None:
        self._jars = jars
        self._url = url
        self._client = client
        self._environment = environment
        self._timeout_s = timeout_s
        self._results = results

    def run(self, tests: Sequence[str], processes: int) -> dict[str, Outcome]:
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for test in tests:
            waiting.put(test)
        with ThreadPoolExecutor(processes) as pool:
            futures = [pool.submit(self._run_in_jvm, waiting, each) for each in range(processes)]
            return {test: each for future in futures for test, each in future.result().items()}

    def _run_in_jvm(self, waiting: "queue.SimpleQueue[str]", number: int) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        log = self._results.with_name(f"jvm_{number}.log")
        with closing(TestJvm(self._jars, log)) as jvm:
            while True:
                try:
                    test = waiting.get_nowait()
                except queue.Empty:
                    return outcomes
                began = time.monotonic()
                outcome = run_test(
                    jvm,
                    f"{_PACKAGE}{test}",
                    self._url,
                    self._client,
                    self._environment,
                    self._timeout_s,
                )
                outcomes[test] = outcome
                self._note(test, outcome, time.monotonic() - began)

    def _note(self, test: str, outcome: Outcome, seconds: float) -> None:
        fields = {"verdict": outcome.verdict.value, "why": outcome.why, "jobs": outcome.jobs}
        line = json.dumps({"test": test, **fields, "seconds": round(seconds, 1)})
        with _ONE_AT_A_TIME:
            with self._results.open("a") as file:
                print(line, file=file)
            print(f"{outcome.verdict.value}: {test} ({seconds:.1f} s)", flush=True)


def _read(results: Path) -> dict[str, Outcome]:
    lines = results.read_text().splitlines() if results.exists() else []
    return {
        line["test"]: Outcome(verdict=Verdict(line["verdict"]), why=line["why"], jobs=line["jobs"])
        for line in map(json.loads, lines)
    }


def table(outcomes: Mapping[str, Outcome]) -> str:
    """Return a table of Markdown: a row for each class, with tests by verdict, and one for all."""
    counted: defaultdict[str, Counter[Verdict]] = defaultdict(Counter)
    for test, outcome in outcomes.items():
        counted[test.partition("#")[0]][outcome.verdict] += 1
        counted["all"][outcome.verdict] += 1
    counted["all"] = counted.pop("all")
    head = ["class", *(verdict.value for verdict in Verdict)]
    rows = [
        [f"`{name}`" if name != "all" else name, *(str(counts[verdict]) for verdict in Verdict)]
        for name, counts in counted.items()
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    sys.exit(main())
