"""Spark 3.5 and the older Beam, in a separate virtual environment: ``make integration``."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyspark
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.util import assert_that, equal_to

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.runner import SparkPortableRunner
from beam_spark_runner.spark.session.launch import start_classic
from beam_spark_runner.spark.versions import SparkVersion
from integration.cluster import SLOTS, start_cluster, wait_for_executors
from integration.partition_pipelines import SMALL_SORTS, read_partitions
from integration.pipelines import Counted, counters, random_keys, two_readers
from integration.restrictions import TakeSteps, steps
from integration.streams import KEYS, windows_of_state

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        SparkVersion.parse(pyspark.__version__) >= (4, 0),
        reason="runs in the environment with Spark 3.5",
    ),
]


@pytest.fixture(scope="module")
def local_session() -> Iterator[Any]:
    session = start_classic("local[2]", "local", {"spark.ui.enabled": "false"})
    yield session
    session.stop()


def finished(pipeline: beam.Pipeline) -> Any:
    result = pipeline.run()
    assert result.wait_until_finish(300_000) == PipelineState.DONE
    return result


def test_a_stream(local_session: Any) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(local_session))
    windows_of_state(pipeline)
    assert counters(finished(pipeline)) == {"elements": 3 * KEYS}


def test_words_with_a_side_input(local_session: Any) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(local_session))
    words = pipeline | beam.Create(["a b", "b c", "c b"]) | beam.FlatMap(str.split)
    total = words | beam.combiners.Count.Globally()
    shares = (
        words
        | beam.ParDo(Counted("words"))
        | beam.combiners.Count.PerElement()
        | beam.Map(lambda pair, total: (*pair, total), beam.pvalue.AsSingleton(total))
    )
    assert_that(shares, equal_to([("a", 1, 6), ("b", 3, 6), ("c", 2, 6)]))
    assert counters(finished(pipeline)) == {"words": 6}


def test_large_elements(local_session: Any) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(local_session))
    sizes = (
        pipeline
        | beam.Create(range(300))
        | beam.Map(lambda index: (index % 3, b"x" * 1_000_000))
        | beam.GroupByKey()
        | beam.MapTuple(lambda key, values: (key, sum(map(len, values))))
    )
    assert_that(sizes, equal_to([(key, 100_000_000) for key in range(3)]))
    finished(pipeline)


@pytest.mark.parametrize("in_two_segments", [False, True])
def test_two_readers(local_session: Any, in_two_segments: bool) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(local_session))
    two_readers(pipeline, 300, in_two_segments=in_two_segments)
    assert counters(finished(pipeline)) == {"drawn": 300}


def test_rounds_of_a_splittable_dofn(local_session: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    options = PipelineOptions(["--sdf_round_budget=0.5", "--parallelism=4"])
    pipeline = beam.Pipeline(runner=SparkPortableRunner(local_session), options=options)
    steps(pipeline, {"long": 150, "short": 10}, TakeSteps(defers_every=10))
    assert counters(finished(pipeline)) == {"steps": 160, "names": 2}
    assert any(text.startswith("round ") for text in caplog.messages)


def test_user_errors(local_session: Any) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(local_session))
    _ = pipeline | beam.Create([0]) | "Divide" >> beam.Map(lambda number: 1 / number)
    with pytest.raises(BundleFailedError, match="ZeroDivisionError") as caught:
        finished(pipeline)
    assert caught.value.step == "Divide"


def test_full_window_partitions(local_session: Any) -> None:
    options = PipelineOptions(["--parallelism=3", SMALL_SORTS])
    pipeline = beam.Pipeline(runner=SparkPortableRunner(local_session), options=options)
    read_partitions(pipeline, 900, 3)
    assert counters(finished(pipeline)) == {"checked": 1}


def test_killed_executors_on_a_cluster(local_session: Any, tmp_path: Path) -> None:
    local_session.stop()  # a process has one classic Spark
    with start_cluster() as cluster, cluster.session("cluster") as session:
        for place in ("making", "map", "sort", "later"):
            wait_for_executors(session)
            options = PipelineOptions([f"--parallelism={SLOTS}", SMALL_SORTS])
            pipeline = beam.Pipeline(runner=SparkPortableRunner(session), options=options)
            marker = tmp_path / place
            read_partitions(pipeline, 1800, SLOTS, markers={place: str(marker)})
            assert counters(finished(pipeline)) == {"checked": 1}
            assert marker.exists()
            marker.unlink()
        for level in range(3):
            markers: list[str | None] = [None, None, None]
            markers[level] = str(tmp_path / f"{level}")
            pipeline = beam.Pipeline(runner=SparkPortableRunner(session))
            random_keys(pipeline, 600, markers=markers, nth=20, late_reader=True)
            assert counters(finished(pipeline))["late"] == 600
    assert len(list(tmp_path.iterdir())) == 3
