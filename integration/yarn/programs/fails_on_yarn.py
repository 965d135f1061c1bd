"""A pipeline whose step fails, after it has left a file for each start of its program."""

import argparse
import sys
import uuid
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=Path, required=True)
    mine, rest = parser.parse_known_args(sys.argv[1:])
    (mine.starts / uuid.uuid4().hex).touch()
    with beam.Pipeline(options=PipelineOptions(rest)) as pipeline:
        _ = pipeline | beam.Create([0]) | "Divide" >> beam.Map(lambda number: 1 / number)
