"""From Kafka to Kafka: ``python -m benchmarks.kafka rate latency``.

Records are counted per key in windows of a minute of event time. This runner writes at least once,
in transactions, and without those by ``--delivery_guarantee=at_least_once``. It and Spark
Structured Streaming take turns on two cores, the broker included; each has its own process and
session. Every count is checked. Machines are shared and noisy: ratios of one run mean something,
other figures only on a quiet machine.

rate: a topic is read from its beginning to its end. Seconds are from the first Spark job until
the last result can be read. The first run of each process is cold, and is shown by itself. CPU time
is that of the side's processes, without the broker; other work on the machine disturbs it less.

latency: records come at a fixed rate, and counts are written as they grow. The time is that from
a record's creation until a count can be read that includes it.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

from benchmarks.kafka.contender import (
    OURS,
    OURS_EXACTLY_ONCE,
    OURS_TRANSACTIONS_OFF,
    PEER,
    STRUCTURED,
    Contender,
    contenders,
)
from benchmarks.kafka.load import Flow, Shape, fill
from integration.kafka_broker import Broker, start_broker

_NAMES = (OURS, OURS_EXACTLY_ONCE, OURS_TRANSACTIONS_OFF, STRUCTURED)
_CORES = 2
_WARM_S = 20.0


def rate(broker: Broker, sides: list[Contender], arguments: argparse.Namespace) -> None:
    """Read a topic from its beginning to its end."""
    shape = Shape(arguments.keys, arguments.partitions, arguments.bytes)
    began_s = time.monotonic()
    expected = fill(broker, "backlog", shape, arguments.records, arguments.windows)
    print(
        f"rate: {arguments.records:,} records of {arguments.bytes} bytes, {arguments.keys:,} keys, "
        f"{arguments.partitions} partitions, {arguments.windows} windows; written in "
        f"{time.monotonic() - began_s:.1f} s",
        flush=True,
    )
    taken: dict[str, list[float]] = {side.name: [] for side in sides}
    used: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(arguments.runs + 1):
        for side in sides:
            called_s = time.time()
            with side.query("backlog", updates=False, interval_ms=None) as query:
                arrivals = query.results.arrivals(arguments.records)
                ended_s = max(at_s for _, _, at_s in arrivals)
                query.results.check(expected)
            taken[side.name].append(ended_s - query.first_job_s)
            used[side.name].append(query.cpu_s)
            label = f"run {number}" if number else "cold"
            print(
                f"  {label:5} {side.name:22} {taken[side.name][-1]:6.2f} s, "
                f"{query.cpu_s:6.2f} s of CPU, {query.jobs} Spark jobs; "
                f"{ended_s - called_s:6.2f} s from the program's call",
                flush=True,
            )
    medians = {name: statistics.median(seconds[1:]) for name, seconds in taken.items()}
    for name, median in medians.items():
        cold = arguments.records / taken[name][0]
        cpu_us = statistics.median(used[name][1:]) / arguments.records * 1e6
        line = (
            f"  {name:22} {arguments.records / median:9,.0f} records/s, cold {cold:9,.0f}; "
            f"{cpu_us:5.2f} us of CPU each"
        )
        peer = medians.get(STRUCTURED)
        print(f"{line}; {peer / median:.2f} of {STRUCTURED}" if peer else line, flush=True)


def latency(broker: Broker, sides: list[Contender], arguments: argparse.Namespace) -> None:
    """Count records that come at a fixed rate."""
    shape = Shape(arguments.keys, arguments.partitions, arguments.bytes)
    print(
        f"latency: {arguments.rate:,} records/s for {arguments.seconds} s, after {_WARM_S:.0f} s "
        "that do not count",
        flush=True,
    )
    for interval_ms in arguments.intervals:
        for side in sides:
            _latency_of(broker, side, shape, interval_ms, arguments)


def _latency_of(
    broker: Broker,
    side: Contender,
    shape: Shape,
    interval_ms: int,
    arguments: argparse.Namespace,
) -> None:
    source = broker.create(f"flow-{uuid.uuid4().hex}", shape.partitions)
    flow = Flow(broker, source, shape, arguments.rate, _WARM_S + arguments.seconds)
    waits_s: list[tuple[float, float]] = []
    seen: dict[tuple[int, bytes], int] = {}
    with side.query(source, updates=True, interval_ms=interval_ms) as query:
        flow.start()
        for where, count, at_s in query.results.arrivals(flow.count):
            flow.seen.set()
            made = flow.made[where][seen.get(where, 0) : count]
            waits_s.extend((each, at_s - each) for each in made)
            seen[where] = max(count, seen.get(where, 0))
        flow.join()
        query.results.check(flow.counts())
    from_s = flow.began_s + _WARM_S
    cuts = statistics.quantiles((wait for made, wait in waits_s if made >= from_s), n=100)
    print(
        f"  every {interval_ms} ms: {side.name:22} p50 {cuts[49] * 1e3:6.0f} ms, "
        f"p99 {cuts[98] * 1e3:6.0f} ms; {query.jobs} Spark jobs",
        flush=True,
    )


_CASES = {"rate": rate, "latency": latency}


def main() -> int:
    """Run the cases that are named."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kafka",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", choices=[*_CASES, []], help="all, if none is named")
    parser.add_argument("--only", nargs="+", choices=_NAMES, default=_NAMES, help="these sides")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=4, help="of the topic that is read")
    parser.add_argument("--bytes", type=int, default=100, help="of a record's value")
    parser.add_argument("--windows", type=int, default=10, help="that the records' times span")
    parser.add_argument("--runs", type=int, default=3, help="warm ones")
    parser.add_argument("--rate", type=int, default=1000, help="records each second, of latency")
    parser.add_argument("--seconds", type=float, default=60, help="of latency")
    parser.add_argument(
        "--intervals",
        type=int,
        nargs="+",
        default=[500, 0],
        help="of epochs and micro-batches in milliseconds, of latency; 0: as fast as possible",
    )
    arguments = parser.parse_args()
    if STRUCTURED in arguments.only and not (PEER / ".ready").exists():
        parser.error(f"Structured Streaming is missing: make {PEER}/.ready")
    cores = sorted(os.sched_getaffinity(0))[:_CORES]
    os.sched_setaffinity(0, cores)  # of all processes that it starts, too
    with tempfile.TemporaryDirectory(prefix="beam-benchmarks-") as name:
        folder = Path(name)
        (folder / "broker").mkdir()
        with (
            start_broker(folder / "broker") as broker,
            contenders(broker, folder, arguments.only) as sides,
        ):
            for case in arguments.cases or _CASES:
                _CASES[case](broker, sides, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
