"""Windows that become due all the time: ``python -m benchmarks.panes --interval_ms 50``.

New keys come each second, in windows of 5 s, through two groupings. At the end of the pipeline, the
lag of each window is measured: from its end until its last key has come out. It is steady if panes
are fired as fast as they become due.
"""

import argparse
import collections
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner import SparkPortableRunner

_WINDOW_S = 5
_TICKS = 10  # per second


def keyed(tick: float, keys: int) -> Iterator[tuple[str, int]]:
    """Return new keys, for a tenth of a second."""
    for number in range(keys // _TICKS):
        yield f"{tick:.3f}/{number}", 1


def shortened(counted: tuple[str, int]) -> tuple[str, int]:
    """Return a key that is shared by the keys of ten elements."""
    key, count = counted
    return key[:-1], count


class Lags(beam.DoFn):  # type: ignore[misc]
    """Notes the lag of each element behind the end of its window."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def start_bundle(self) -> None:
        self._lags: dict[float, float] = {}

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> None:
        end = float(window.end)
        self._lags[end] = time.time() - end

    def finish_bundle(self) -> None:
        if self._lags:
            path = Path(self._folder, f"{time.time_ns()}")
            path.write_text("\n".join(f"{end} {lag}" for end, lag in self._lags.items()))


def main() -> None:
    """Run the pipeline for a while, and print the lag of each window."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=300, help="new keys per second")
    parser.add_argument("--interval_ms", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=90)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options = PipelineOptions(
            ["--spark_master_url=local[2]", f"--batch_interval_millis={asked.interval_ms}"]
        )
        pipeline = beam.Pipeline(runner=SparkPortableRunner(), options=options)
        _ = (
            pipeline
            | PeriodicImpulse(fire_interval=1 / _TICKS)
            | beam.FlatMap(keyed, asked.keys).with_output_types(tuple[str, int])
            | beam.WindowInto(FixedWindows(_WINDOW_S))
            | "PerKey" >> beam.CombinePerKey(sum)
            | beam.Map(shortened).with_output_types(tuple[str, int])
            | "PerTen" >> beam.GroupByKey()
            | beam.ParDo(Lags(folder))
        )
        result = pipeline.run()
        time.sleep(asked.seconds)
        result.cancel()
        lags: dict[float, float] = collections.defaultdict(float)
        for path in Path(folder).iterdir():
            for line in path.read_text().splitlines():
                end, lag = map(float, line.split())
                lags[end] = max(lags[end], lag)
    print(f"{asked.keys} keys/s, interval {asked.interval_ms} ms: {len(lags)} windows")
    print("lag of each, s:", " ".join(f"{lags[end]:.1f}" for end in sorted(lags)))


if __name__ == "__main__":
    main()
