"""Runs many tests in several JVMs side by side, and stores their results."""

import json
import queue
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from integration.go_sdk.run import Client, Outcome, Verdict
from integration.java_sdk.programs import TestJvm
from integration.java_sdk.run import run_test

PACKAGE = "org.apache.beam.sdk."
"""The prefix of all classes of tests, which their names do not show."""


class Suite:
    """The tests of a run, and what they have in common.

    Args:
        jars: The folder of Beam's jars.
        url: Of the job server.
        client: Of the same.
        environment: Options that name the environment of the pipelines' steps.
        results: Gets one line of JSON for each test. Next to it are the logs of the JVMs.
    """

    def __init__(
        self, jars: Path, url: str, client: Client, environment: Sequence[str], results: Path
    ) -> None:
        self._jars = jars
        self._url = url
        self._client = client
        self._environment = environment
        self._results = results
        self._one_at_a_time = Lock()  # lines of the results, and those that are printed

    def run(self, tests: Iterable[str], processes: int, timeout_s: float) -> dict[str, Outcome]:
        """Run tests. An exception, such as that of Ctrl-C, kills their JVMs.

        Args:
            tests: ``CLASS#METHOD`` each, without ``PACKAGE``.
            processes: The number of JVMs.
            timeout_s: For each test.
        """
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for test in tests:
            waiting.put(test)
        outcomes: dict[str, Outcome] = {}

        def run_in(jvm: TestJvm) -> None:
            while (test := _next(waiting)) is not None:
                began = time.monotonic()
                name = f"{PACKAGE}{test}"
                outcome = run_test(jvm, name, self._url, self._client, self._environment, timeout_s)
                outcomes[test] = outcome
                self._note(test, outcome, time.monotonic() - began)

        jvms = [
            TestJvm(self._jars, self._results.with_name(f"jvm_{number}.log"))
            for number in range(processes)
        ]
        with ThreadPoolExecutor(processes) as pool:
            try:
                for each in [pool.submit(run_in, jvm) for jvm in jvms]:
                    each.result()
            finally:
                while _next(waiting) is not None:
                    pass
                for jvm in jvms:
                    jvm.close()
        return outcomes

    def _note(self, test: str, outcome: Outcome, seconds: float) -> None:
        fields = {"verdict": outcome.verdict.value, "why": outcome.why, "jobs": outcome.jobs}
        line = json.dumps({"test": test, **fields, "seconds": round(seconds, 1)})
        with self._one_at_a_time:
            with self._results.open("a") as file:
                print(line, file=file)
            print(f"{outcome.verdict.value}: {test} ({seconds:.1f} s)", flush=True)


def read_results(results: Path) -> dict[str, Outcome]:
    """Return the outcomes that a run has stored, by test."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {
        line["test"]: Outcome(verdict=Verdict(line["verdict"]), why=line["why"], jobs=line["jobs"])
        for line in map(json.loads, lines)
    }


def _next(waiting: "queue.SimpleQueue[str]") -> str | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None
