"""Full-window partitions: computations over all elements of each partition of a collection.

Generates measurements. For each partition, it prints the largest step between two measurements
that follow each other in time, the latest measurement, and the mean; then the mean of each sensor.

    python examples/partitions.py --runner=SparkPortableRunner --spark_master_url=local[2]
"""

import random
import sys
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.transforms import FullWindowPartition


def measurements(seed: int) -> Iterator[beam.Row]:
    chance = random.Random(seed)
    for second in chance.sample(range(1_000), 100):
        yield beam.Row(sensor=chance.choice("abc"), second=second, value=chance.random())


def largest_step(records: Iterator[beam.Row]) -> Iterator[float]:
    """Yield the largest difference between neighbours; the records are sorted by time."""
    last = next(records, None)
    if last is None:  # an empty partition
        return
    step = 0.0
    for record in records:
        step = max(step, abs(record.value - last.value))
        last = record
    yield round(step, 3)


def later(one: beam.Row, other: beam.Row) -> beam.Row:
    return max(one, other, key=lambda each: each.second)


def main(arguments: list[str]) -> None:
    with beam.Pipeline(options=PipelineOptions(arguments)) as pipeline:
        measured = pipeline | beam.Create(range(8)) | beam.FlatMap(measurements)
        by_time = measured | FullWindowPartition().sort_partition("second")
        steps = by_time | FullWindowPartition().map_partition(largest_step)
        latest = measured | FullWindowPartition().reduce(later)
        means = (
            measured
            | "values" >> beam.Map(lambda each: each.value)
            | FullWindowPartition().aggregate(beam.combiners.MeanCombineFn())
        )
        of_sensors = (
            measured
            | "by sensor" >> beam.Map(lambda each: (each.sensor, each.value))
            | "of sensors" >> FullWindowPartition.by_key().aggregate(beam.combiners.MeanCombineFn())
        )
        for name, results in {
            "largest step of a partition": steps,
            "latest of a partition": latest,
            "mean of a partition": means,
            "mean of a sensor": of_sensors,
        }.items():
            _ = results | f"Print the {name}" >> beam.Map(
                lambda result, name: print(f"{name}: {result}"), name
            )


if __name__ == "__main__":
    main(sys.argv[1:])
