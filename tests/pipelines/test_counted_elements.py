"""Elements of a collection are counted once, however many stages emit and read it."""

from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.portable.monitoring import element_counts
from tests.harvest import RARE_HARNESSES, run


def build(p: beam.Pipeline) -> None:
    """Build stages that read a grouping twice, a step of another stage, and a Flatten."""
    rates = p | "rates" >> beam.Create([1, 2, 3])
    pairs = p | "numbers" >> beam.Create(range(12)) | "pair" >> beam.Map(lambda n: (n % 4, n))
    groups = pairs | beam.GroupByKey()
    sizes = groups | "size" >> beam.MapTuple(lambda key, values: len(list(values)))
    looked = sizes | "look up" >> beam.Map(
        lambda size, rates: size * len(rates), beam.pvalue.AsList(rates)
    )
    keys = groups | "with keys" >> beam.Map(
        lambda group, rates: group[0] + len(rates), beam.pvalue.AsList(rates)
    )
    both = (looked, keys) | beam.Flatten()
    joined = pairs | "joined" >> beam.GroupByKey()
    both | "beside" >> beam.Map(lambda size, groups: len(groups), beam.pvalue.AsList(joined))
    joined | "and read" >> beam.Map(str)
    both | "spread" >> beam.Reshuffle() | "last" >> beam.Map(str)
    both | "sum" >> beam.CombineGlobally(sum)


@pytest.mark.parametrize("flags", RARE_HARNESSES)
@pytest.mark.parametrize("kind", [(), ("--streaming",)], ids=["batch", "stream"])
def test_elements_are_counted_once(
    spark_session: Any, kind: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    job = run(spark_session, build, *kind, *flags)._job
    counts = element_counts(job.attempted())
    names = {
        collection: transform.name
        for transform in job.plan.graph.transforms.values()
        for collection in transform.outputs.values()
    }
    found = {names[collection]: count for collection, count in counts.items()}
    expected = {
        **{"pair": 12, "GroupByKey": 4, "size": 4, "look up": 4, "with keys": 4},
        **{"Flatten": 8, "last": 8, "joined": 4, "and read": 4},
    }
    assert {name: found.get(name) for name in expected} == expected
