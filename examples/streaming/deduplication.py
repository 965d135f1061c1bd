"""Deduplication: keeps the first of all events with the same id within a period of time.

Reads lines such as ``{"id": "e7", "text": "hello"}`` as they arrive in a folder. An id is
remembered for ``--remember`` seconds of event time, in state that a timer clears.

    python examples/streaming/deduplication.py --input='/tmp/events/*.json' --output=/tmp/once/out \
        --runner=SparkPortableRunner --checkpoint_dir=/tmp/deduplication
"""

import argparse
import json
import sys
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.deduplicate import DeduplicatePerKey
from apache_beam.transforms.window import FixedWindows


def start(arguments: list[str]) -> Any:
    """Start the pipeline and return its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="pattern of the files that are read")
    parser.add_argument("--output", required=True, help="beginning of the names of files")
    parser.add_argument("--remember", type=float, default=3600, help="seconds")
    parser.add_argument("--window", type=float, default=60, help="of the files; seconds")
    mine, rest = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(rest))
    _ = (
        pipeline
        | fileio.MatchContinuously(mine.input, interval=1)
        | fileio.ReadMatches()
        | "Lines" >> beam.FlatMap(lambda file: file.read_utf8().splitlines())
        | "Parse" >> beam.Map(json.loads)
        | "By id" >> beam.Map(lambda event: (event["id"], event))
        | DeduplicatePerKey(event_time_duration=mine.remember)
        | "Text" >> beam.MapTuple(lambda _, event: json.dumps(event))
        | beam.WindowInto(FixedWindows(mine.window))
        | beam.io.WriteToText(mine.output, file_name_suffix=".json", num_shards=1)
    )
    return pipeline.run()


if __name__ == "__main__":
    start(sys.argv[1:]).wait_until_finish()
