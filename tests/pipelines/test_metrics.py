"""Metrics on the result: attempted, committed, and of a job that failed."""

import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner import SparkPortableRunner
from tests.harvest import REUSED_PROCESS, SPREAD, run


class Measures(beam.DoFn):  # type: ignore[misc]
    def process(self, n: int) -> Iterator[tuple[int, int]]:
        Metrics.counter("tests", "elements").inc()
        Metrics.counter(self.__class__, "of the class").inc(2)
        Metrics.distribution("tests", "sizes").update(n)
        Metrics.gauge("tests", "last").set(7)
        Metrics.string_set("tests", "names").add(f"n{n % 3}")
        Metrics.bounded_trie("tests", "paths").add(("root", f"n{n % 2}"))
        yield n % 5, n

    def finish_bundle(self) -> None:
        Metrics.counter("tests", "bundles").inc()


def only(result: Any, kind: str, name: str, step: str | None = None) -> Any:
    query = MetricsFilter().with_name(name)
    (found,) = result.metrics().query(query.with_step(step) if step else query)[kind]
    return found


def test_every_kind(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        measured = p | beam.Create(range(100)) | "Outer" >> Twice()
        # Two consumers: what was measured once is counted once.
        measured | "sum" >> beam.CombinePerKey(sum) | beam.Map(count_groups)
        measured | beam.GroupByKey() | "again" >> beam.Map(count_groups)
        p | beam.Impulse() | beam.Map(lambda _, side: len(side), beam.pvalue.AsList(measured))

    result = run(spark_session, build, SPREAD)
    assert result.state == "DONE"
    expected = {
        ("counters", "elements"): 100,
        ("counters", "of the class"): 200,
        ("gauges", "last"): 7,
        ("string_sets", "names"): {"n0", "n1", "n2"},
    }
    for (kind, name), value in expected.items():
        found = only(result, kind, name)
        assert found.key.step == "Outer/measure"
        for seen in (found.committed, found.attempted):
            assert getattr(seen, "value", seen) == value
    sizes = only(result, "distributions", "sizes").committed
    assert (sizes.sum, sizes.count, sizes.min, sizes.max) == (4950, 100, 0, 99)
    paths = only(result, "bounded_tries", "paths").committed
    assert paths.as_trie().size() == 2 if hasattr(paths, "as_trie") else paths
    assert only(result, "counters", "bundles").committed >= 2
    by_step = {
        each.key.step: each.committed
        for each in result.metrics().query(MetricsFilter().with_name("groups"))["counters"]
    }
    assert by_step == {"Map(count_groups)": 5, "again": 5}


class Twice(beam.PTransform):  # type: ignore[misc]
    def expand(self, numbers: Any) -> Any:
        return numbers | "measure" >> beam.ParDo(Measures())


def count_groups(group: Any) -> Any:
    Metrics.counter("tests", "groups").inc()
    return group


def test_a_job_that_failed(spark_session: Any) -> None:
    """The first Spark job's metrics were committed, the second's only attempted."""

    def fail(n: int, side: Any) -> None:
        Metrics.counter("tests", "second").inc()
        if n == 42:
            raise ValueError("no")

    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(spark=spark_session), options=PipelineOptions([SPREAD])
    )
    numbers = pipeline | beam.Create(range(100))
    side = numbers | "first" >> beam.ParDo(Measures())
    numbers | "second" >> beam.Map(fail, beam.pvalue.AsList(side))
    result = pipeline.run()
    with pytest.raises(RuntimeError, match="second: ValueError: no"):
        result.wait_until_finish()
    first = only(result, "counters", "elements", "first")
    assert (first.attempted, first.committed) == (100, 100)
    second = only(result, "counters", "second", "second")
    assert not second.committed
    assert 0 < second.attempted <= 100


class Slow(beam.DoFn):  # type: ignore[misc]
    def process(self, n: int) -> Iterator[int]:
        Metrics.counter("tests", "slow").inc()
        time.sleep(0.02)
        yield n


@pytest.mark.parametrize(
    ("flags", "is_live"),
    [
        pytest.param((), True, id="socket"),
        pytest.param(("--streaming",), True, id="in an epoch"),
        pytest.param(("--backchannel=files",), True, id="files", marks=pytest.mark.rare),
        pytest.param(("--backchannel=off", SPREAD), False, id="off", marks=pytest.mark.rare),
        pytest.param(REUSED_PROCESS, True, id="PROCESS", marks=pytest.mark.rare),
    ],
)
def test_a_job_that_runs(spark_session: Any, flags: tuple[str, ...], is_live: bool) -> None:
    """Attempted values grow while it runs; at its end they are exact with and without that."""
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(spark=spark_session), options=PipelineOptions(list(flags))
    )
    numbers = pipeline | beam.Create(range(400), reshuffle=True) | "slow" >> beam.ParDo(Slow())
    numbers | beam.Map(lambda n: (n % 5, n)) | beam.GroupByKey()
    result = pipeline.run()
    query = MetricsFilter().with_name("slow")
    seen: set[int] = set()
    while result.wait_until_finish(duration=100) == "RUNNING":
        for each in result.metrics().query(query)["counters"]:
            assert each.committed in (None, 400)  # accepted, and about to end
            assert each.key.step == "slow"
            seen.add(each.attempted)
    assert result.state == "DONE"
    assert bool(seen - {400}) == is_live
    assert all(0 < value <= 400 for value in seen)
    (last,) = result.metrics().query(query)["counters"]
    assert (last.committed, last.attempted) == (400, 400)
