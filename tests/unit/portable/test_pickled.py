"""Which words are found in the pickled code of a pipeline."""

import base64
import bz2
import zlib
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import Coder
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.portable.pickled import words_of_pickles


class Coded(Coder):  # type: ignore[misc]
    def __init__(self) -> None:
        self.text = "in the coder"


class Worded(beam.DoFn):  # type: ignore[misc]
    def __init__(self) -> None:
        self.text = "in the DoFn"

    def process(self, element: Any) -> Any:
        yield element


@pytest.mark.parametrize("library", ["cloudpickle", "dill"])
def test_words_of_a_pipeline(library: str) -> None:
    if library == "dill" and pickler.dill_pickler is None:
        pytest.skip("dill is an extra")
    try:
        p = beam.Pipeline(options=PipelineOptions(pickle_library=library))
        (
            p
            | beam.Impulse()
            | beam.ParDo(Worded())
            | beam.Map(eval("lambda x: used_by_name(x).attribute", {"__name__": "__main__"}))
            | beam.CombineGlobally(eval("lambda xs: [in_a_combiner for x in xs]", {}))
        )
        proto, context = p.to_runner_api(return_context=True)
        context.coders.get_id(Coded())
        context.to_runner_api()
        words = words_of_pickles(context.to_runner_api())
        words |= words_of_pickles(proto)
    finally:
        pickler.set_library()
    wanted = {"in the DoFn", "used_by_name", "attribute", "in_a_combiner", "in the coder"}
    assert wanted <= words


@pytest.mark.parametrize("text", [b"QlpoOTFBWSZTAAAA", b"QlpoOTFBWSZT!", b"eNqAAAA", b"eNqx"])
@pytest.mark.parametrize("compress", [bz2.compress, zlib.compress])
def test_what_only_looks_like_code_is_ignored(text: bytes, compress: Any) -> None:
    pipeline = beam_runner_api_pb2.Pipeline()
    for index, each in enumerate((text, base64.b64encode(compress(b"\xffno pickle")))):
        pipeline.components.transforms[str(index)].spec.payload = each
    assert words_of_pickles(pipeline) == frozenset()
