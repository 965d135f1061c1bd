"""The job server: small jobs in sequence and at once, its memory, and its CPU time while idle.

    python -m benchmarks.server [--jobs N] [--many N] [--idle S] [CASE …]
    python -m benchmarks.server [--megabytes N] [--runs N] process
    PRISM=PATH python -m benchmarks.server [--megabytes N] [--runs N] go

There is one server with two slots. Small jobs have three elements, and run in SDK harnesses in
processes. Their times are from submission to DONE, as a client in this process sees them. The
server's memory is that of its Python process, and what Spark's JVM has after a garbage collection
(by jcmd of a JDK).

process: Python's word count with SDK harnesses in processes, alternating with the same in a session
of this process, without the server. go: Go's word count with LOOPBACK, alternating with a Prism in
a separate process. The Prism is taken from ``PRISM`` in the environment, from next to this Python,
or from the path. This case needs Go.
"""

import argparse
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apache_beam as beam
import psutil
from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks.server_peers import (
    PROCESS,
    compare_with_own_session,
    compare_with_prism,
    run_until_done,
)
from integration.job_server import start_job_server
from tests.spark.random_streams.references import prism

_KEPT_S = 60
_FLAGS = (
    "--runner=SparkPortableRunner",
    *PROCESS,
    f"--environment_cache_millis={_KEPT_S}000",
)
_MB = 1 << 20
_USED_KB = re.compile(r"(?:heap|generation)\s+total \d+K, used (\d+)K")


class _Bench:
    def __init__(self, most_at_once: int) -> None:
        self.url = start_job_server(f"--max_concurrent_jobs={most_at_once}")
        (self._server,) = (
            each
            for each in psutil.Process().children()
            if "beam_spark_runner" in " ".join(each.cmdline())
        )
        self._jvm = next(
            each for each in self._server.children(recursive=True) if each.name() == "java"
        )

    def job(self, _: Any = None) -> float:
        """Run a pipeline of three elements; return its seconds."""
        options = PipelineOptions([*_FLAGS, f"--job_endpoint={self.url}"])
        pipeline = beam.Pipeline(options=options)
        _ = pipeline | beam.Create([1, 2, 3]) | beam.Map(lambda x: x + 1)
        return run_until_done(pipeline)

    def memory_mb(self) -> tuple[int, int]:
        """Return the memory of the server's Python process, and of its JVM's live heap, in MB."""
        self._ask_jvm("GC.run")
        used = _USED_KB.findall(self._ask_jvm("GC.heap_info"))
        return self._server.memory_info().rss // _MB, sum(map(int, used)) >> 10

    def _ask_jvm(self, command: str) -> str:
        asked = ["jcmd", str(self._jvm.pid), command]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout

    def cpu_s(self) -> dict[psutil.Process, float]:
        """Return the CPU times of the server and of all its living processes, in seconds."""
        family = [self._server, *self._server.children(recursive=True)]
        return {each: sum(each.cpu_times()[:2]) for each in family}


def _warm(bench: _Bench, count: int) -> None:
    for _ in range(3):
        bench.job()
    seconds = sorted(bench.job() for _ in range(count))
    print(
        f"warm: {count} jobs of three elements, p50 {statistics.median(seconds):.2f} s, "
        f"least {seconds[0]:.2f} s, most {seconds[-1]:.2f} s"
    )


def _at_once(bench: _Bench, count: int) -> None:
    bench.job()
    before = bench.memory_mb()
    began = time.monotonic()
    for _ in range(count):
        bench.job()
    in_turns_s = time.monotonic() - began
    began = time.monotonic()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(bench.job, range(count)))
    at_once_s = time.monotonic() - began
    after = bench.memory_mb()
    print(
        f"at once: {count} jobs {at_once_s:.1f} s, one after another {in_turns_s:.1f} s: "
        f"{at_once_s / in_turns_s:.2f}; memory (Python, live heap) in MB {before}, then {after}"
    )


def _many(bench: _Bench, count: int) -> None:
    bench.job()
    found = [bench.memory_mb()]
    for _ in range(5):
        for _ in range(count // 5):
            bench.job()
        found.append(bench.memory_mb())
    print(f"many: {count} jobs; memory (Python, live heap) in MB after each fifth: {found}")


def _idle(bench: _Bench, seconds: float) -> None:
    bench.job()
    time.sleep(_KEPT_S + 5)  # until its harnesses have ended
    before = bench.cpu_s()
    time.sleep(seconds)
    after = bench.cpu_s()  # some Python workers have ended meanwhile
    used = sum(cpu_s - before.get(process, 0.0) for process, cpu_s in after.items())
    print(f"idle: {used / seconds:.2%} of a core, over {seconds:g} s")


def main() -> None:
    """Measure, and print a line for each case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server", description=__doc__)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--many", type=int, default=500)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds")
    parser.add_argument("--megabytes", type=int, default=20, help="of text, for process and go")
    parser.add_argument("--runs", type=int, default=3, help="of each side of process and go")
    parser.add_argument(
        "cases", nargs="*", help="of warm, at_once, many, idle, process, go; all but go if none"
    )
    arguments = parser.parse_args()
    location = prism()
    if "go" in arguments.cases and location is None:
        parser.error("no Prism: neither in $PRISM, next to this Python, nor on the path")
    bench = _Bench(most_at_once=8)
    size, runs = arguments.megabytes, arguments.runs
    cases: dict[str, Callable[[], None]] = {
        "warm": lambda: _warm(bench, arguments.jobs),
        "at_once": lambda: _at_once(bench, arguments.jobs),
        "idle": lambda: _idle(bench, arguments.idle),
        "many": lambda: _many(bench, arguments.many),
        "process": lambda: compare_with_own_session(bench.url, size, runs, _KEPT_S),
        "go": lambda: compare_with_prism(bench.url, str(location), size, runs),
    }
    for name in arguments.cases or [each for each in cases if each != "go"]:
        cases[name]()


if __name__ == "__main__":
    main()
