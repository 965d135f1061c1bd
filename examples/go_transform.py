"""A Python pipeline with a Go transform, whose steps run in the Go program that expands it.

    cd examples/go && go run ./expansion_service --port=8097
    python examples/go_transform.py --runner=SparkPortableRunner --spark_master_url='local[2]'

The first command is an expansion service. Beam's Go SDK has none, so the example contains one.
"""

import argparse
import logging

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.external import ExternalTransform, ImplicitSchemaPayloadBuilder

LINES = ["To be, or not to be:", "that is the question."]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--expansion_service", default="localhost:8097", help="HOST:PORT")
    arguments, flags = parser.parse_known_args()
    count_words = ExternalTransform(
        "beam:example:go:count_words:v1",
        ImplicitSchemaPayloadBuilder({"min_length": 2}),
        arguments.expansion_service,
    )
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        (
            pipeline
            | beam.Create(LINES).with_output_types(str)  # a type that both SDKs have a coder for
            | "In Go" >> count_words
            | "In Python"
            >> beam.MapTuple(lambda word, count: logging.warning("%s: %d", word, count))
        )


if __name__ == "__main__":
    main()
