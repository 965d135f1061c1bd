"""A pipeline that stands still in the middle, on every host, until a file is there.

``waits_for_a_file.py FOLDER [OPTION …]``: FOLDER is one that all executors share. Tasks make the
file ``begun-HOST`` in it, and continue when there is one that is called ``go-on``. The words of the
output are in ``counts``, one ``NUMBER: COUNT`` in each line.
"""

import os
import platform
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

ELEMENTS = 400
KEYS = 40


class Wait(beam.DoFn):  # type: ignore[misc]
    """Passes elements on once the file is there."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(self, element: int) -> Iterable[tuple[int, int]]:
        """Wait, then emit the element by its key."""
        folder = Path(self._folder)
        (folder / f"begun-{platform.node()}").touch()
        while not (folder / "go-on").exists():
            os.scandir(folder).close()  # some shared storage caches what is not there
            time.sleep(0.05)
        yield element % KEYS, 1


def main(folder: str, options: list[str]) -> None:
    """Run the pipeline."""
    with beam.Pipeline(options=PipelineOptions(options)) as pipeline:
        _ = (
            pipeline
            | beam.Create(range(ELEMENTS))
            | beam.Reshuffle()
            | beam.ParDo(Wait(folder))
            | beam.CombinePerKey(sum)
            | beam.MapTuple(lambda key, count: f"{key}: {count}")
            | beam.io.WriteToText(f"{folder}/counts")
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
