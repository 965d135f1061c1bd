"""Word count, a GroupByKey and side inputs; checks its results, and says how it runs."""

import logging
import os
import sys
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from pyspark.sql import SparkSession

LINES = ["to be or not to be", "that is the question"] * 50
COUNTS = {"to": 100, "be": 100, "or": 50, "not": 50, "that": 50, "is": 50, "the": 50}
SETTINGS = (
    "spark.shuffle.reduceLocality.enabled",
    "spark.python.worker.faulthandler.enabled",
    "spark.python.unix.domain.socket.dir",
)
"""Which the runner sets, unless a user has set them."""


class Says(beam.DoFn):  # type: ignore[misc]
    """Prints and logs one of the words."""

    def process(self, counted: tuple[str, int]) -> Iterator[tuple[str, int]]:
        if counted[0] == "question":
            print("printed by a step", flush=True)
            logging.warning("logged by a step")
        yield counted


def main(arguments: list[str]) -> None:
    """Run the pipeline."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    print("HOME is", os.environ.get("HOME"), flush=True)
    with beam.Pipeline(options=PipelineOptions(arguments)) as pipeline:
        words = pipeline | beam.Create(LINES) | beam.FlatMap(str.split)
        counts = words | beam.combiners.Count.PerElement() | beam.ParDo(Says())
        assert_that(counts, equal_to([*COUNTS.items(), ("question", 50)]), "counts")
        numbers = pipeline | "Numbers" >> beam.Create(range(10_000))
        groups = numbers | beam.Map(lambda number: (number % 7, number)) | beam.GroupByKey()
        sizes = groups | beam.MapTuple(lambda key, values: (key, len(list(values))))
        assert_that(
            sizes, equal_to([(key, len(range(key, 10_000, 7))) for key in range(7)]), "sizes"
        )
        values = pipeline | "Values" >> beam.Create([("to", 1), ("be", 2)])
        ten = pipeline | "Ten" >> beam.Create([10])
        total = words | beam.Map(
            lambda word, found, more: found.get(word, 0) + more,
            found=beam.pvalue.AsDict(values),
            more=beam.pvalue.AsSingleton(ten),
        )
        total = total | beam.CombineGlobally(sum)
        assert_that(total, equal_to([100 * 11 + 100 * 12 + 300 * 10]), "total")
    conf = SparkSession.builder.getOrCreate().sparkContext.getConf()
    for name in SETTINGS:
        print(f"{name} is {conf.get(name)}", flush=True)
    print("the pipeline is done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
