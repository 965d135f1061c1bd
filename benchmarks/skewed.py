"""The speedup by splitting a long restriction: one of two has nine tenths of the work.

Each step sleeps, and takes no CPU, so that a busy machine changes little. The largest possible
speedup on two cores is 1.8.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from benchmarks.cases import STEPS, check

_STEP_S = 0.01


class _Step(beam.DoFn):  # type: ignore[misc]
    def process(self, element: int, tracker: Any = STEPS) -> Iterator[int]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            time.sleep(_STEP_S)
            yield 1
            position += 1


def _timed(session: Any, steps: int, *flags: str) -> float:
    from beam_spark_runner import SparkPortableRunner

    began = time.monotonic()
    runner, options = SparkPortableRunner(session), PipelineOptions(list(flags))
    with beam.Pipeline(runner=runner, options=options) as pipeline:
        (
            pipeline
            | beam.Create([steps * 9 // 10, steps // 10])
            | beam.ParDo(_Step())
            | beam.CombineGlobally(sum)
            | beam.Map(check, steps * 9 // 10 + steps // 10)
        )
    return time.monotonic() - began


def main() -> None:
    """Run the pipeline both ways in one session, and print both times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skewed", description=__doc__)
    parser.add_argument("--seconds", type=int, default=120, help="of work in all")
    steps = int(parser.parse_args().seconds / _STEP_S)
    from beam_spark_runner.spark.session.launch import start_classic

    session = start_classic("local[2]", "benchmarks", {"spark.ui.enabled": "false"})
    _timed(session, 200)  # warm
    alone = _timed(session, steps, "--sdf_round_budget=0")
    spread = _timed(session, steps)
    print(f"in place {alone:.1f} s, in rounds {spread:.1f} s: {alone / spread:.2f} times as fast")


if __name__ == "__main__":
    main()
