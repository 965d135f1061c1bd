"""The cases of ``python -m benchmarks.server`` that compare the job server with something else.

Two contenders take turns, after a run of each that warms them. Each run is checked: its counts of
words must be those of plain Python.
"""

import contextlib
import os
import re
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.spark.session.launch import start_classic
from benchmarks.cases import text_of, word_count
from integration.go_sdk.programs import build_main, sources
from integration.ports import free_ports

PROCESS = ("--environment_type=PROCESS", "--environment_config={}")
_BUILT = Path(__file__).parents[1] / "build" / "go"
_GO_WORDS = r"[a-zA-Z]+(?:'[a-z])?"  # as in Go's word count
_PYTHON_WORDS = r"[\w']+"  # as in Python's
_LIMIT_S = 900.0
_LAST_CHARACTERS = 2_000


def compare_with_prism(url: str, prism: str, megabytes: int, runs: int) -> None:
    """Compare the server with a Prism: Go's word count, whose own process runs its DoFns.

    The times are those of the whole program.
    """
    program = build_main("go/examples/wordcount", sources(beam.__version__), _BUILT)
    with _scratch() as scratch, _prism_server(prism, scratch) as prism_url:
        text = text_of(megabytes, scratch)
        expected = _counted(text, _GO_WORDS)

        def run(endpoint: str) -> float:
            counts = scratch / "go-counts"
            counts.unlink(missing_ok=True)
            seconds = _run_go(program, endpoint, text, counts)
            _check([counts], expected)
            return seconds

        _in_turns(
            f"go: word count of {megabytes} MB",
            runs,
            {"job server": partial(run, url), "Prism": partial(run, prism_url)},
        )


def compare_with_own_session(url: str, megabytes: int, runs: int, kept_s: int) -> None:
    """Compare the server with a session of this process: Python's word count, from run() to DONE.

    SDK harnesses are processes: first new ones for each job, then some that are kept.
    """
    session = start_classic("local[2]", "benchmarks", {"spark.ui.enabled": "false"})
    with _scratch() as scratch:
        expected = _counted(text_of(megabytes, scratch), _PYTHON_WORDS)

        def run(runner: Any, *flags: str) -> float:
            for counts in scratch.glob("counts-*"):
                counts.unlink()
            pipeline = beam.Pipeline(runner, options=PipelineOptions([*PROCESS, *flags]))
            word_count(pipeline, megabytes, scratch)
            seconds = run_until_done(pipeline)
            _check(scratch.glob("counts-*"), expected)
            return seconds

        kept = f"--environment_cache_millis={kept_s}000"
        for harnesses, flags in (("new", ()), ("kept", (kept,))):
            _in_turns(
                f"process: word count of {megabytes} MB, {harnesses} SDK harnesses",
                runs,
                {
                    "job server": partial(
                        run, "SparkPortableRunner", f"--job_endpoint={url}", *flags
                    ),
                    "without": partial(run, SparkPortableRunner(session), *flags),
                },
            )
    session.stop()


def run_until_done(pipeline: beam.Pipeline) -> float:
    """Run a pipeline; return the seconds from ``run()`` until its job is DONE.

    Raises:
        RuntimeError: It has ended otherwise.
    """
    began = time.monotonic()
    state = pipeline.run().wait_until_finish()
    if state != "DONE":
        raise RuntimeError(f"a job ended as {state}")
    return time.monotonic() - began


def _in_turns(case: str, runs: int, contenders: dict[str, Callable[[], float]]) -> None:
    """Print the seconds of each run of two contenders, their medians, and the ratio of these."""
    for run in contenders.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(runs):
        for name, run in contenders.items():
            seconds[name].append(run())
    medians = [statistics.median(each) for each in seconds.values()]
    for (name, each), median in zip(seconds.items(), medians, strict=True):
        listed = ", ".join(f"{one:.2f}" for one in each)
        print(f"{case}, {name}: {listed} s; median {median:.2f} s")
    print(f"{case}: {' / '.join(contenders)} = {medians[0] / medians[1]:.2f}", flush=True)


def _run_go(program: Path, endpoint: str, text: Path, counts: Path) -> float:
    """Run Go's word count with LOOPBACK; return its seconds.

    Raises:
        RuntimeError: It has failed; with its last words.
    """
    began = time.monotonic()
    done = subprocess.run(
        [
            *(str(program), f"--input={text}", f"--output={counts}"),
            *("--runner=universal", f"--endpoint={endpoint}", "--environment_type=LOOPBACK"),
        ],
        env={**os.environ, "TMPDIR": str(text.parent)},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    if done.returncode:
        raise RuntimeError(f"Go's word count failed: {done.stderr[-_LAST_CHARACTERS:]}")
    return time.monotonic() - began


@contextlib.contextmanager
def _prism_server(prism: str, scratch: Path) -> Iterator[str]:
    """Run a Prism; yield HOST:PORT of its job service. Go's clients wait until it answers."""
    (port,) = free_ports(1)
    command = [prism, f"--job_port={port}", "--serve_http=false", "--log_level=error"]
    with (scratch / "prism.log").open("wb") as log:
        server = subprocess.Popen(
            command,
            env={**os.environ, "TMPDIR": str(scratch)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield f"localhost:{port}"
        finally:
            server.terminate()
            server.wait()


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    with TemporaryDirectory(prefix="beam-benchmarks-") as folder:
        yield Path(folder)


def _counted(text: Path, words: str) -> Counter[str]:
    return Counter(found.group() for found in re.finditer(words, text.read_text("utf-8")))


def _check(files: Iterable[Path], expected: Counter[str]) -> None:
    """Raise a ValueError if files do not have the expected counts, each of them once."""
    found = sorted(line for file in files for line in file.read_text("utf-8").splitlines())
    if found != sorted(f"{word}: {count}" for word, count in expected.items()):
        raise ValueError(f"wrong counts, {len(found)} instead of {len(expected)}: the run is void")
