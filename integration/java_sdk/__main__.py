"""Run Java's tests against a job server, and compare the results with the ledger.

Exit status 1: something differs from ``expectations.toml``; 2: the machine lacks a program. The
output folder has what tests and server print, and the results, one line of JSON each. ``--resume``
continues from there.
"""

import argparse
import contextlib
import json
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from integration.go_sdk import ledger
from integration.go_sdk.run import Outcome, Verdict, client_of
from integration.java_sdk.idle_server import idle_server
from integration.java_sdk.programs import (
    MissingToolsError,
    check_tools,
    class_path,
    jars,
    tests_of,
    version_of,
)
from integration.java_sdk.suite import PACKAGE, Suite, read_results
from integration.job_server import start_job_server

_ROOT = Path(__file__).parents[2]
_FOLDER = Path(__file__).parent
EXPECTATIONS = _FOLDER / "expectations.toml"


def main() -> int:
    """Parse the command line, run, print, compare."""
    parser = argparse.ArgumentParser(prog="python -m integration.java_sdk")
    parser.add_argument("tests", nargs="*", help="CLASS or CLASS#METHOD, the end of it; else all")
    parser.add_argument("--environment", choices=("LOOPBACK", "PROCESS"), default="LOOPBACK")
    parser.add_argument("--endpoint", help="a job server that runs already")
    parser.add_argument(
        "--idle", action="store_true", help="run nothing: none of the tests may then be sound"
    )
    parser.add_argument("--timeout", type=float, default=180.0, help="of a test, in seconds")
    parser.add_argument("--processes", type=int, default=2, help="JVMs side by side")
    parser.add_argument("--resume", action="store_true", help="continue the last run")
    parser.add_argument("--jars", type=Path, default=_ROOT / "build" / "java" / "jars")
    parser.add_argument("--out", type=Path, default=_ROOT / "build" / "java")
    given = parser.parse_args()
    # The server and the JVMs are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        check_tools()
    except MissingToolsError as error:
        print(error, file=sys.stderr)
        return 2
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    kind = "idle" if given.idle else given.environment.lower()
    results = out / f"results_{kind}.jsonl"
    if not given.resume:
        results.unlink(missing_ok=True)
    folder = jars(given.jars.resolve())
    expected = ledger.load(version_of(folder), EXPECTATIONS)
    slow = ledger.slow(EXPECTATIONS)
    tests = list(chosen((each.removeprefix(PACKAGE) for each in tests_of(folder)), given.tests))
    if not tests:
        parser.error("no test has such a name")
    known = read_results(results)
    outcomes = {test: known[test] for test in tests if test in known}
    with contextlib.ExitStack() as stack:
        if given.idle:
            url = stack.enter_context(idle_server())
        else:
            url = given.endpoint or start_job_server(log=out / "server.log")
        client = stack.enter_context(client_of(url))
        suite = Suite(folder, url, client, _environment(given.environment, folder), results)
        left = [test for test in tests if test not in known]
        normal = [test for test in left if test not in slow]
        outcomes |= suite.run(normal, given.processes, given.timeout)
        # They occupy the slots of Spark, so that others would not end in time.
        for test in sorted(set(left) - set(normal)):
            outcomes |= suite.run([test], 1, max(slow[test], given.timeout))
    print(f"\n{table(outcomes)}\n")
    if given.idle:
        sound = [test for test, outcome in outcomes.items() if outcome.verdict is Verdict.SOUND]
        print(f"{len(sound)} sound on a server that runs nothing: {', '.join(sound)}")
        return 1 if sound else 0
    differences = list(ledger.surprises(outcomes, expected, is_whole=not given.tests))
    for line in differences:
        print(line)
    print(f"{len(differences)} difference(s) from {EXPECTATIONS.name}")
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


def table(outcomes: Mapping[str, Outcome]) -> str:
    """Return a table of Markdown: a row for each class, with tests by verdict, and one for all."""
    counted: defaultdict[str, Counter[Verdict]] = defaultdict(Counter)
    whole: Counter[Verdict] = Counter()
    for test, outcome in sorted(outcomes.items()):
        counted[f"`{test.partition('#')[0]}`"][outcome.verdict] += 1
        whole[outcome.verdict] += 1
    head = ["class", *(verdict.value for verdict in Verdict)]
    rows = [
        [name, *(str(counts[verdict]) for verdict in Verdict)]
        for name, counts in (*counted.items(), ("all", whole))
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    sys.exit(main())
