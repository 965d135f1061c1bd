"""Interactive Beam on top of this runner."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.interactive import interactive_beam as ib
from apache_beam.runners.interactive.interactive_runner import InteractiveRunner

from beam_spark_runner import SparkPortableRunner

pytestmark = pytest.mark.spark


def rows(frame: Any) -> list[Any]:
    return sorted(map(tuple, frame.to_numpy().tolist()))


@pytest.mark.rare
def test_collect_and_go_on(spark_session: Any) -> None:
    seen: list[str] = []

    class Runner(SparkPortableRunner):
        def run_portable_pipeline(self, pipeline: Any, options: Any) -> Any:
            result = super().run_portable_pipeline(pipeline, options)
            seen.append(result.state)
            return result

    p = beam.Pipeline(InteractiveRunner(underlying_runner=Runner(spark_session)))
    words = p | beam.Create(["a", "b", "a"])
    counts = words | beam.combiners.Count.PerElement()
    ib.watch({"p": p, "words": words, "counts": counts})
    assert rows(ib.collect(counts)) == [("a", 2), ("b", 1)]
    more = counts | "more" >> beam.MapTuple(lambda word, count: (word, count * 10))
    ib.watch({"more": more})
    assert rows(ib.collect(more)) == [("a", 20), ("b", 10)]
    assert seen == ["DONE", "DONE"]


def test_a_result_shows_its_plan(spark_session: Any) -> None:
    pipeline = beam.Pipeline(SparkPortableRunner(spark_session))
    pipeline | beam.Create(["<a>"]) | "<Count>" >> beam.combiners.Count.PerElement()
    result = pipeline.run()
    assert result.wait_until_finish() == "DONE"
    page = result._repr_html_()
    assert page.startswith("<p>DONE</p>")
    assert "one Spark job" in page
    assert "&lt;Count&gt;" in page
    assert "<Count>" not in page
