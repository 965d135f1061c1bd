"""A TestStream with many events: ``python -m benchmarks.played 1000``.

The events go into windows, a grouping, and a step with state and a timer for each key. A small one
runs first, so that Spark and its workers have started. ``--runner_option`` passes an option on,
such as ``--runner_option=--parallel_test_streams``, which has a Spark job for each epoch.
"""

import argparse
import time

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from tests.stateful import Collect

_KEYS = 5
_FIRST = 6
_WINDOW_S = 10
_KINDS = 3  # of events, which take turns: an element, a watermark, the clock


def play(events: int, *flags: str) -> float:
    """Play so many events and check the results; return the seconds."""
    rounds = events // _KINDS
    stream = TestStream()
    for number in range(rounds):
        stream.add_elements([TimestampedValue((str(number % _KEYS), number), number)])
        stream.advance_watermark_to(number)
        stream.advance_processing_time(1)
    stream.advance_watermark_to_infinity()
    sums: dict[tuple[int, int], int] = {}
    for number in range(rounds):
        place = number // _WINDOW_S, number % _KEYS
        sums[place] = sums.get(place, 0) + number
    expected = [(str(key), total) for (_, key), total in sums.items()]
    began_s = time.monotonic()
    options = PipelineOptions(["--runner=SparkPortableRunner", "--streaming", *flags])
    with beam.Pipeline(options=options) as pipeline:
        pairs = pipeline | stream | beam.Map(tuple).with_output_types(tuple[str, int])
        windowed = pairs | beam.WindowInto(FixedWindows(_WINDOW_S))
        ways = {"grouped": beam.GroupByKey(), "in state": beam.ParDo(Collect())}
        for label, way in ways.items():
            sums_of_way = (
                windowed | way | label >> beam.MapTuple(lambda key, all_: (key, sum(all_)))
            )
            assert_that(sums_of_way, equal_to(expected), label=f"check {label}")
    return time.monotonic() - began_s


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.played", description=__doc__)
    parser.add_argument("events", type=int)
    parser.add_argument("--runner_option", action="append", default=[])
    given = parser.parse_args()
    flags = ["--spark_master_url=local[2]", *given.runner_option]
    play(_FIRST, *flags)
    print(f"{given.events} events: {play(given.events, *flags):.1f} s")


if __name__ == "__main__":
    main()
