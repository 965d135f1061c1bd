"""Pipelines whose keys are in a state store, or on the local disk."""

import argparse
import contextlib
import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import apache_beam as beam
import redis
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.in_process.session import InProcessSession
from beam_spark_runner.job.run import session_opening
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.state.store import StoredState
from benchmarks import streams
from benchmarks.state_store.delaying_proxy import delaying_proxy

_ROUNDS = 6  # the first one finds no keys, and the second one warms up
_WARM = 2
_AFTER_ALL = 1_000_000  # event time, in seconds
_MS = 1e-3
_NOTHING_KEPT = "--state_store_cache_mb=0"


class Moment(NamedTuple):
    """What was used when a round began, in seconds."""

    clock_s: float
    cpu_s: float  # of this process
    server_cpu_s: float


_moments: list[Moment] = []  # of the pipeline that runs in this process


class _Keys(beam.DoFn):  # type: ignore[misc]
    """Emits the keys of a round, and notes when it begins."""

    def __init__(self, port: int, keys: int) -> None:
        self._port, self._keys = port, keys

    def process(self, number: int) -> Iterator[tuple[int, int]]:
        _moments.append(
            Moment(
                time.monotonic(), time.process_time(), server_cpu_s(redis.Redis(port=self._port))
            )
        )
        return ((key, number) for key in range(self._keys))


class Counts(beam.DoFn):  # type: ignore[misc]
    """Counts the rounds of a key, which has a timer."""

    COUNT = ReadModifyWriteStateSpec("count", VarIntCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[int, int],
        count: Any = beam.DoFn.StateParam(COUNT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        count.write((count.read() or 0) + 1)
        due.set(_AFTER_ALL)

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def forget(self, count: Any = beam.DoFn.StateParam(COUNT)) -> None:
        count.clear()


def server_cpu_s(client: redis.Redis) -> float:
    """Return the CPU seconds that a server has used."""
    info: Any = client.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])


def _spent(port: int, keys: int, *flags: str) -> Moment:
    """Return what a round takes, as the median of some: seconds of all kinds."""

    class Stop(Exception):  # the keys of the last round need not be removed
        pass

    def stop(number: int) -> int:
        if number == _ROUNDS:
            raise Stop
        return number

    events = TestStream().with_output_types(int)
    for number in range(_ROUNDS + 1):
        events = events.add_elements([TimestampedValue(number, number)])
    _moments.clear()
    with in_process(), contextlib.suppress(RuntimeError):
        pipeline = beam.Pipeline(
            SparkPortableRunner(), PipelineOptions(["--streaming", "--parallelism=2", *flags])
        )
        make = beam.ParDo(_Keys(port, keys)).with_output_types(tuple[int, int])
        pipeline | events | "fail" >> beam.Map(stop) | make | beam.ParDo(Counts())
        pipeline.run().wait_until_finish()
    rounds = [
        Moment(*(after - before for before, after in zip(one, next_one, strict=True)))
        for one, next_one in itertools.pairwise(_moments[_WARM:])
    ]
    return Moment(*map(statistics.median, zip(*rounds, strict=True)))


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Have pipelines run in this process, without Spark."""

    def open_session(config: Any, given: Any) -> InProcessSession:
        return InProcessSession()

    with mock.patch.object(session_opening, "open_session", open_session):
        yield


def rates(port: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure a step with a value and a timer of each key."""

    def measured(what: str, keys: int, *flags: str) -> float:
        spent = _spent(port, keys, *flags)
        per_key = [1e6 * each / keys for each in spent]
        print(
            f"{what + ':':36} {per_key[0]:8.1f} us for each key; CPU: {per_key[1]:.1f} us, "
            f"and {per_key[2]:.1f} us of the server",
            flush=True,
        )
        return per_key[0]

    def address(port: int) -> str:
        return f"--state_store=redis://127.0.0.1:{port}"

    def one_at_a_time() -> contextlib.AbstractContextManager[object]:
        return mock.patch.object(StoredState, "ask", return_value=None)

    count, few = arguments.keys, arguments.single_keys
    local = measured("on the local disk", count)
    near = measured("in the store", count, address(port), _NOTHING_KEPT)
    measured("in the store and in memory", count, address(port))
    with delaying_proxy(port, 1 * _MS) as proxy:
        at_1 = measured("at 1 ms", count, address(proxy), _NOTHING_KEPT)
        with one_at_a_time():
            reads = "at 1 ms, one read at a time"
            single = measured(reads, few, address(proxy), _NOTHING_KEPT)
    with delaying_proxy(port, 10 * _MS) as proxy:
        at_10 = measured("at 10 ms", count, address(proxy), _NOTHING_KEPT)
        kept = measured("at 10 ms, and in memory", count, address(proxy))
    print(f"at 1 ms, reading ahead: {single / at_1:.0f} times the rate of one read at a time")
    print(f"at 10 ms: {at_1 / at_10:.0%} of the rate at 1 ms")
    print(f"at 10 ms, in memory: {at_10 / kept:.1f} times the rate of reads")
    print(f"without delay: {local / near:.0%} of the rate of the local disk")


def epochs(port: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure epochs that have next to nothing to do."""
    session = start_classic("local[2]", "state-store", {"spark.ui.enabled": "false"})
    store = f"--state_store=redis://127.0.0.1:{port}"
    medians: dict[str, list[float]] = {"on the local disk": [], "in the store": []}
    for turn in range(4):  # the first turn of each warms
        for (what, found), flags in zip(medians.items(), ((), (store,)), strict=True):
            path = folder / f"{what} {turn}"
            _run_on(session, path, arguments.epochs // 3, *flags)
            between = _between(path)[10:]
            if turn:
                found += between
    session.stop()
    p50 = {what: 1e3 * statistics.median(found) for what, found in medians.items()}
    for what, ms in p50.items():
        print(f"an epoch of three levels, keys {what}: p50 {ms:.1f} ms")
    local_ms, store_ms = p50.values()
    print(f"difference: {store_ms - local_ms:.1f} ms")


def _run_on(session: Any, path: Path, epochs: int, *flags: str) -> None:
    def build(p: beam.Pipeline) -> None:
        events = TestStream().with_output_types(tuple[int, int])
        for number in range(epochs):
            events.add_elements([TimestampedValue((number, number), number)])
        windowed = p | events.advance_watermark_to_infinity() | streams.at_once()
        streams.through_levels(windowed, 3) | beam.ParDo(streams.Notes(path))

    streams.run(session, build, *flags)


def _between(path: Path) -> list[float]:
    times = [at for at, _ in streams.noted(path)]
    return [later - at for at, later in itertools.pairwise(times)]
