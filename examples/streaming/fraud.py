"""Fraud detection: reports cards with too many payments in a short time, by state and timers.

Reads lines such as ``{"card": "c1", "amount": 25}`` as they arrive in a folder. The payments of a
card are counted until ``--within`` seconds after the first one; then a timer clears the count. A
card with more than ``--most`` of them is reported once in this time.

    python examples/streaming/fraud.py --input='/tmp/payments/*.json' --output=/tmp/alerts/out \
        --runner=SparkPortableRunner --checkpoint_dir=/tmp/fraud
"""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import CombiningValueStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows


class TooMany(beam.DoFn):  # type: ignore[misc]
    """Reports a card when it has more than ``most`` payments within ``within_s`` seconds."""

    COUNT = CombiningValueStateSpec("count", sum)
    TOTAL = CombiningValueStateSpec("total", sum)
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def __init__(self, most: int, within_s: float) -> None:
        self._most, self._within_s = most, within_s

    def process(
        self,
        payment: tuple[str, float],
        time: Any = beam.DoFn.TimestampParam,
        count: Any = beam.DoFn.StateParam(COUNT),
        total: Any = beam.DoFn.StateParam(TOTAL),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[dict[str, Any]]:
        card, amount = payment
        if not count.read():
            end.set(time + self._within_s)
        count.add(1)
        total.add(amount)
        if count.read() == self._most + 1:
            yield {"card": card, "payments": count.read(), "total": total.read()}

    @on_timer(END)  # type: ignore[untyped-decorator]
    def clear(
        self,
        count: Any = beam.DoFn.StateParam(COUNT),
        total: Any = beam.DoFn.StateParam(TOTAL),
    ) -> None:
        """Clear the state; the next payment starts another period."""
        count.clear()
        total.clear()


def start(arguments: list[str]) -> Any:
    """Start the pipeline and return its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="pattern of the files that are read")
    parser.add_argument("--output", required=True, help="beginning of the names of files")
    parser.add_argument("--most", type=int, default=3, help="payments that are no alert")
    parser.add_argument("--within", type=float, default=60, help="seconds")
    parser.add_argument("--window", type=float, default=60, help="of the files; seconds")
    mine, rest = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(rest))
    _ = (
        pipeline
        | fileio.MatchContinuously(mine.input, interval=1)
        | fileio.ReadMatches()
        | "Lines" >> beam.FlatMap(lambda file: file.read_utf8().splitlines())
        | "Parse" >> beam.Map(json.loads)
        | "By card" >> beam.Map(lambda payment: (payment["card"], payment["amount"]))
        | beam.ParDo(TooMany(mine.most, mine.within))
        | "Text" >> beam.Map(json.dumps)
        | beam.WindowInto(FixedWindows(mine.window))
        | beam.io.WriteToText(mine.output, file_name_suffix=".json", num_shards=1)
    )
    return pipeline.run()


if __name__ == "__main__":
    start(sys.argv[1:]).wait_until_finish()
