"""Counts the words of the files that arrive in a folder, per minute.

docs/streaming.md starts it, kills it, and starts it again.

    python examples/streaming/word_counts.py --input='/tmp/words/*.txt' --output=/tmp/counts/count \
        --runner=SparkPortableRunner --checkpoint_dir=/tmp/word-counts
"""

import argparse
import re
import sys
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows


def start(arguments: list[str]) -> Any:
    """Start the pipeline and return its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="pattern of the files that are read")
    parser.add_argument("--output", required=True, help="beginning of the names of files")
    parser.add_argument("--window", type=float, default=60, help="seconds")
    mine, rest = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(rest))
    _ = (
        pipeline
        | fileio.MatchContinuously(mine.input, interval=1)
        | fileio.ReadMatches()
        | "Words" >> beam.FlatMap(lambda file: re.findall(r"\w+", file.read_utf8().lower()))
        | beam.WindowInto(FixedWindows(mine.window))
        | beam.combiners.Count.PerElement()
        | "Lines" >> beam.MapTuple(lambda word, count: f"{word} {count}")
        | beam.io.WriteToText(mine.output, file_name_suffix=".txt", num_shards=1)
    )
    return pipeline.run()


if __name__ == "__main__":
    start(sys.argv[1:]).wait_until_finish()
