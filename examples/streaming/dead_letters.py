"""Dead letters: elements that cannot be processed are written to separate files.

Reads lines such as ``{"item": "tea", "price": 4}`` as they arrive in a folder, and writes the sum
of the prices of each item, per window. Lines that cannot be parsed are written with the error.

    python examples/streaming/dead_letters.py --input='/tmp/prices/*.json' --output=/tmp/sums/out \
        --dead_letters=/tmp/dead/out --runner=SparkPortableRunner --checkpoint_dir=/tmp/dead-letters
"""

import argparse
import json
import sys
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows


def parse(line: str) -> tuple[str, float]:
    sale = json.loads(line)
    return sale["item"], float(sale["price"])


def describe(letter: tuple[str, tuple[type, str, list[str]]]) -> str:
    """Return a JSON line of an element and the text of its error."""
    line, (_, error, _) = letter
    return json.dumps({"line": line, "error": error})


def start(arguments: list[str]) -> Any:
    """Start the pipeline and return its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="pattern of the files that are read")
    parser.add_argument("--output", required=True, help="beginning of the names of files")
    parser.add_argument("--dead_letters", required=True, help="the same, of lines that are wrong")
    parser.add_argument("--window", type=float, default=60, help="seconds")
    mine, rest = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(rest))
    sales, wrong = (
        pipeline
        | fileio.MatchContinuously(mine.input, interval=1)
        | fileio.ReadMatches()
        | "Lines" >> beam.FlatMap(lambda file: file.read_utf8().splitlines())
        | beam.WindowInto(FixedWindows(mine.window))
        | "Parse" >> beam.Map(parse).with_exception_handling()
    )
    _ = (
        sales
        | beam.CombinePerKey(sum)
        | "Text" >> beam.MapTuple(lambda item, total: f"{item} {total}")
        | "Write" >> beam.io.WriteToText(mine.output, file_name_suffix=".txt", num_shards=1)
    )
    _ = (
        wrong
        | "Describe" >> beam.Map(describe)
        | "Write dead letters"
        >> beam.io.WriteToText(mine.dead_letters, file_name_suffix=".json", num_shards=1)
    )
    return pipeline.run()


if __name__ == "__main__":
    start(sys.argv[1:]).wait_until_finish()
