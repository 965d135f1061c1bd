"""Counts the words of files, wherever Beam finds them."""

import argparse
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    mine, rest = parser.parse_known_args(sys.argv[1:])
    with beam.Pipeline(options=PipelineOptions(rest)) as pipeline:
        _ = (
            pipeline
            | beam.io.ReadFromText(mine.input)
            | beam.FlatMap(str.split)
            | beam.combiners.Count.PerElement()
            | beam.MapTuple(lambda word, count: f"{word} {count}")
            | beam.io.WriteToText(mine.output)
        )
