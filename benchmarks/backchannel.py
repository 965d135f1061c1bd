"""The cost of the backchannel: ``python -m benchmarks.backchannel``.

lines: the CPU time of this process for a log line, with both ends of a socket on loopback.

jobs: a pipeline of three elements in a warm session, alternately with and without the backchannel.

flood: a pipeline in a warm session that logs a million lines, compared with the same pipeline
without logging, and with one whose log level suppresses the lines.
"""

import argparse
import logging
import time
from collections.abc import Callable
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner._generated.backchannel_pb2 import WorkerFrame
from beam_spark_runner.backchannel.driver import BackchannelServer
from beam_spark_runner.backchannel.log_lines import LogHandler
from beam_spark_runner.backchannel.log_rate_limiter import AT_ONCE
from beam_spark_runner.backchannel.worker import Backchannel
from beam_spark_runner.job.watching.messages import JobMessages
from beam_spark_runner.spark.session.launch import start_classic
from benchmarks.cases import CASES
from benchmarks.harness import PROCESS

_LINES = 100_000
_RUNS = 12
_FLOOD = 1_000_000
_FLOODS = 3  # the first one warms


def _cpu_us(lines: int, work: Callable[[], None]) -> float:
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1000 / lines


def _lines() -> None:
    messages = JobMessages({})

    def take(worker: str, frame: WorkerFrame) -> None:
        for coded in frame.log_entries:
            messages.take_line(worker, beam_fn_api_pb2.LogEntry.FromString(coded))

    server = BackchannelServer("job", take, listen=("127.0.0.1", 0), advertise="127.0.0.1")
    channel = Backchannel(server.route)
    handler = LogHandler(channel)
    logger = logging.getLogger("benchmarks.lines")
    logger.setLevel(logging.INFO)
    logger.propagate = False

    def log(count: int) -> None:
        for number in range(count):
            logger.info("line %d of user code", number)

    logger.addHandler(logging.NullHandler())
    nowhere = _cpu_us(_LINES, lambda: log(_LINES))
    logger.addHandler(handler)

    def log_and_settle() -> None:
        log(AT_ONCE)
        server.expect(*channel.messages_sent())
        server.settle()

    sent = _cpu_us(AT_ONCE, log_and_settle)
    dropped = _cpu_us(_LINES, lambda: log(_LINES))
    channel.close()
    server.close()
    print(f"a line that nobody takes (Python's logging):        {nowhere:6.1f} us")
    print(f"a line that arrives, both ends:                     {sent:6.1f} us")
    print(f"a line of a flood, counted only:                    {dropped:6.1f} us")


def _jobs() -> None:
    session = start_classic("local[2]", "benchmarks", {"spark.ui.enabled": "false"})
    seconds: dict[str, list[float]] = {"auto": [], "off": []}
    for number in range(2 * _RUNS + 2):
        kind = ("auto", "off")[number % 2]
        began = time.monotonic()
        options = PipelineOptions([f"--backchannel={kind}"])
        with beam.Pipeline(runner=SparkPortableRunner(spark=session), options=options) as pipeline:
            CASES["three_elements"].build(pipeline, 3, Path())
        if number > 1:
            seconds[kind].append(time.monotonic() - began)
    for kind, all_ in seconds.items():
        ordered = sorted(all_)
        print(
            f"three elements, --backchannel={kind + ':':6} best {ordered[0]:.3f} s, "
            f"median {ordered[len(ordered) // 2]:.3f} s"
        )
    session.stop()


class _Floods(beam.DoFn):  # type: ignore[misc]
    def __init__(self, *, logs: bool) -> None:
        self._logs = logs

    def process(self, element: int) -> None:
        logger = logging.getLogger("benchmarks.flood")
        for number in range(element):
            if self._logs:
                logger.info("line %d of user code", number)


def _flood() -> None:
    session = start_classic("local[2]", "benchmarks", {"spark.ui.enabled": "false"})
    ways = {
        "no lines": (False, ()),
        "lines below the level": (True, ("--default_sdk_harness_log_level=ERROR",)),
        "lines": (True, ()),
    }
    kinds = {"EMBEDDED": (), "PROCESS": PROCESS}
    for kind, flags in kinds.items():
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(_FLOODS):
            for name, (logs, more) in ways.items():
                began = time.monotonic()
                runner = SparkPortableRunner(spark=session)
                options = PipelineOptions([*flags, *more, "--parallelism=2"])
                with beam.Pipeline(runner=runner, options=options) as pipeline:
                    parts = pipeline | beam.Create([_FLOOD // 4] * 4) | beam.Reshuffle()
                    parts | beam.ParDo(_Floods(logs=logs))
                seconds[name].append(time.monotonic() - began)
        for name, all_ in seconds.items():
            print(f"{_FLOOD:,} lines, {kind + ', ' + name + ':':33} best {min(all_[1:]):.2f} s")
    session.stop()


def main() -> None:
    """Run the cases of the command line, and print their figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backchannel", description=__doc__)
    cases = {"lines": _lines, "jobs": _jobs, "flood": _flood}
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(cases)}; all if none is named")
    for case in parser.parse_args().cases or cases:
        cases[case]()


if __name__ == "__main__":
    main()
