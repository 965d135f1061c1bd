"""Runs a pipeline whenever a file appears, in one Spark application, until there is a file "end".

Each pipeline has as many elements as the file says. Each element takes a tenth of a second; with
``--held``, it waits until there is another file, such as "0.through" for the first pipeline.
"""

import argparse
import time
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to


def slowly(number: int, through: str | None) -> tuple[int, int]:
    """Return the number with a key, after some time, or when there is a file."""
    time.sleep(0.1 if through is None else 0)
    while through is not None and not Path(through).exists():
        time.sleep(0.05)
    return number % 5, number


def run(arguments: list[str], count: int, through: str | None) -> None:
    """Run one pipeline, and check its result."""
    with beam.Pipeline(options=PipelineOptions(arguments)) as pipeline:
        numbers = pipeline | beam.Create(range(count)) | beam.Reshuffle()
        numbers = numbers | beam.Map(slowly, through).with_output_types(tuple[int, int])
        sums = numbers | beam.GroupByKey() | beam.MapTuple(lambda key, found: (key, sum(found)))
        assert_that(sums, equal_to([(key, sum(range(key, count, 5))) for key in range(5)]))


def main() -> None:
    """Run pipelines until the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=Path, required=True)
    parser.add_argument("--held", action="store_true")
    mine, rest = parser.parse_known_args()
    turn = 0
    while not (mine.turns / "end").exists():
        if (file := mine.turns / f"{turn}").exists() and (text := file.read_text()):
            run(rest, int(text), f"{file}.through" if mine.held else None)
            print(f"turn {turn} is done", flush=True)
            turn += 1
        time.sleep(0.1)


if __name__ == "__main__":
    main()
