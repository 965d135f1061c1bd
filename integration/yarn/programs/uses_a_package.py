"""A step that needs a package of the pipeline's own."""

import importlib
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to


def plural(word: str) -> str:
    """Return the plural of a word."""
    # Only where the step runs.
    return str(importlib.import_module("inflection").pluralize(word))


if __name__ == "__main__":
    with beam.Pipeline(options=PipelineOptions(sys.argv[1:])) as pipeline:
        plurals = pipeline | beam.Create(["box", "cat"]) | beam.Map(plural)
        assert_that(plurals, equal_to(["boxes", "cats"]))
    print("the plurals are right", flush=True)
