"""Which files a pipeline has written, by what its sinks have emitted."""

from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.written_files import written_files


@pytest.mark.parametrize(
    ("settings", "number", "path"),
    [
        ({}, 1, "out/x-00000-of-00001"),
        ({}, 2, "out/x-*-of-00002"),
        ({"file_name_suffix": ".txt"}, 2, "out/x-*-of-00002.txt"),
        ({"shard_name_template": ""}, 1, "out/x"),
        ({"shard_name_template": "-U-SS"}, 1, "out/x-*-00"),
    ],
)
def test_a_sink(settings: dict[str, Any], number: int, path: str) -> None:
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create([1]) | beam.io.WriteToText("out/x", **settings)
    graph = from_proto(pipeline.to_runner_api())
    (made,) = (
        id_
        for step in graph.transforms.values()
        if step.name.endswith("/FinalizeWrite")
        for id_ in step.outputs.values()
    )
    assert list(written_files(graph, {str(made): number})) == [(path, number)]
    assert list(written_files(graph, {})) == []
