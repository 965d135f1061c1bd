"""A stream with much to do for each file that appears in a folder, and nothing else to do.

The tasks for "1.work" do not end before there is "1.through", so that they are still there when
executors come. The stream is drained when there is a file that is given as the end.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io import fileio
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.transforms.userstate import CombiningValueStateSpec

PARTS = 240
# Each look at the folder is an epoch with tasks for all executors. Between two of them, these must
# be idle for long enough to go.
POLL_S = 6.0


def held(part: tuple[str, int]) -> tuple[str, int]:
    """Return the part, once its file may pass."""
    while not Path(part[0]).with_suffix(".through").exists():
        time.sleep(0.05)
    return part


class MarksFiles(beam.DoFn):  # type: ignore[misc]
    """Leaves a file when all parts of another one have arrived."""

    SEEN = CombiningValueStateSpec("seen", sum)

    def process(
        self, part: tuple[str, int], seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[str]:
        seen.add(1)
        if seen.read() == PARTS:
            Path(part[0]).with_suffix(".done").touch()
            yield part[0]


def main() -> None:
    """Run the pipeline until it is to end, or fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--end", type=Path, required=True)
    mine, rest = parser.parse_known_args(sys.argv[1:])
    pipeline = beam.Pipeline(options=PipelineOptions([*rest, "--streaming"]))
    files = pipeline | fileio.MatchContinuously(f"{mine.folder}/*.work", interval=POLL_S)
    parts = files | beam.FlatMap(lambda file: [(file.path, part) for part in range(PARTS)])
    parts = parts | beam.Reshuffle() | beam.Map(held).with_output_types(tuple[str, int])
    _ = parts | beam.ParDo(MarksFiles())
    result = pipeline.run()
    while not mine.end.exists() and not PipelineState.is_terminal(result.state):
        time.sleep(0.1)
    if mine.end.exists():
        result.drain()
    result.wait_until_finish()
    print("the stream is done", flush=True)


if __name__ == "__main__":
    main()
