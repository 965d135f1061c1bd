"""The picture says what the text says, in HTML that is well formed."""

from xml.etree import ElementTree

import apache_beam as beam

from beam_spark_runner.plan.explain import explain
from beam_spark_runner.plan.picture import picture
from tests.compiled import compile_pipeline


def test_everything_of_the_text_is_in_the_picture() -> None:
    pipeline = beam.Pipeline()
    words = pipeline | beam.Create(["a"]) | 'Says "<b>" & more' >> beam.Map(str)
    count = words | beam.combiners.Count.Globally()
    words | "Ask" >> beam.Map(lambda word, n: (word, n), beam.pvalue.AsSingleton(count))
    plan = compile_pipeline(pipeline.to_runner_api())
    root = ElementTree.fromstring(picture(plan).replace("<br>", "<br/>"))
    shown = " ".join(" ".join(root.itertext()).split())
    for line in explain(plan).splitlines():
        assert " ".join(line.split()) in shown
    assert "Materialised at the end" in shown
