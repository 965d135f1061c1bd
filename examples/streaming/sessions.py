"""Sessions of users: the pages that each of them visited without a pause longer than the gap.

Reads files with lines such as ``{"user": "ann", "page": "/start"}`` as they arrive in a folder, and
writes a line for each session when it has ended.

    python examples/streaming/sessions.py --input='/tmp/clicks/*.json' --output=/tmp/sessions/out \
        --gap=30 --runner=SparkPortableRunner --checkpoint_dir=/tmp/sessions-checkpoint
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows, IntervalWindow, Sessions


def describe(
    user_and_pages: tuple[str, Iterable[str]],
    session: IntervalWindow = beam.DoFn.WindowParam,
) -> Iterator[str]:
    """Yield a JSON line for a session. Its window ends one gap after its last event."""
    user, pages = user_and_pages
    visited = sorted(pages)
    yield json.dumps({"user": user, "begin": float(session.start), "pages": visited})


def start(arguments: list[str]) -> Any:
    """Start the pipeline and return its result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True, help="pattern of the files that are read")
    parser.add_argument("--output", required=True, help="beginning of the names of files")
    parser.add_argument("--gap", type=float, default=600, help="seconds that end a session")
    parser.add_argument("--window", type=float, default=60, help="of the files; seconds")
    mine, rest = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(rest))
    _ = (
        pipeline
        | fileio.MatchContinuously(mine.input, interval=1)
        | fileio.ReadMatches()
        | "Lines" >> beam.FlatMap(lambda file: file.read_utf8().splitlines())
        | "Parse" >> beam.Map(json.loads)
        | "By user" >> beam.Map(lambda event: (event["user"], event["page"]))
        | beam.WindowInto(Sessions(mine.gap))
        | beam.GroupByKey()
        | "Describe" >> beam.FlatMap(describe)
        # Sessions that end in the same fixed window share a file: one for each would be small.
        | "Windows of files" >> beam.WindowInto(FixedWindows(mine.window))
        | beam.io.WriteToText(mine.output, file_name_suffix=".json", num_shards=1)
    )
    return pipeline.run()


if __name__ == "__main__":
    start(sys.argv[1:]).wait_until_finish()
