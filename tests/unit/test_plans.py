"""A plan that is shown before its pipeline runs."""

from xml.etree import ElementTree

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner import show_plan
from beam_spark_runner.errors import OptionsError


@pytest.mark.parametrize("flags", [[], ["--environment_type=LOOPBACK"]], ids=" ".join)
def test_a_plan_is_shown_of_a_pipeline_that_does_not_run(flags: list[str]) -> None:
    pipeline = beam.Pipeline(options=PipelineOptions(flags))
    _ = pipeline | "Read" >> beam.Create([(1, 2)]) | "Sum" >> beam.CombinePerKey(sum)
    shown = show_plan(pipeline)
    assert str(shown) == repr(shown)
    assert "Exchange 1: group by key for Sum" in str(shown)
    root = ElementTree.fromstring(shown._repr_html_().replace("<br>", "<br/>"))
    assert "group by key for Sum" in " ".join(root.itertext())


def test_options_are_those_of_the_pipeline() -> None:
    with pytest.raises(OptionsError, match="--progress"):
        show_plan(beam.Pipeline(options=PipelineOptions(["--progress=maybe"])))
