"""The restart of a killed streaming pipeline: ``python -m benchmarks.restart``.

Measures the time from the start of the command until the pipeline has committed again. It has a
million keys with 100 bytes each, and reads its state from the checkpoint, as on another machine.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from integration.waiting import newest_epoch

_KEYS = 1_000_000
_SHARES = 100
_POLL_S = 0.02
_RUNS = 3


class _Keeps(beam.DoFn):  # type: ignore[misc]
    KEPT = ReadModifyWriteStateSpec("kept", BytesCoder())

    def process(
        self, pair: tuple[int, int], kept: Any = beam.DoFn.StateParam(KEPT)
    ) -> Iterator[int]:
        if kept.read() is None:
            kept.write(os.urandom(100))
        yield pair[0]


def _share(number: int) -> Iterator[tuple[int, int]]:
    return ((key, 1) for key in range(number, _KEYS, _SHARES))


def _build(pipeline: beam.Pipeline) -> None:
    pair = tuple[int, int]
    shares = pipeline | beam.Create(range(_SHARES)) | beam.Reshuffle()
    keys = shares | beam.FlatMap(_share).with_output_types(pair)
    ticks = pipeline | PeriodicImpulse(fire_interval=0.2)
    others = ticks | beam.Map(lambda at: (int(at), 1)).with_output_types(pair)
    _ = (keys, others) | beam.Flatten() | beam.ParDo(_Keeps())


def _until_committed(folder: Path, epochs: int) -> float:
    """Start the pipeline, and kill it after some commits; return the seconds until the last one."""
    checkpoints = folder / "checkpoints"
    until, began = newest_epoch(checkpoints) + epochs, time.monotonic()
    command = [sys.executable, "-m", "benchmarks.restart", "--child", str(checkpoints)]
    environment = {**os.environ, "TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder)}
    child = subprocess.Popen(command, env=environment, start_new_session=True)
    while newest_epoch(checkpoints) < until:
        if child.poll() is not None:
            raise SystemExit("the pipeline has ended")
        time.sleep(_POLL_S)
    taken = time.monotonic() - began
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return taken


def main() -> int:
    """Fill the state, then restart the pipeline several times, and print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        flags = ["--spark_master_url=local[2]", f"--checkpoint_dir={arguments.child}"]
        options = PipelineOptions(flags)
        with beam.Pipeline(runner="SparkPortableRunner", options=options) as pipeline:
            _build(pipeline)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "checkpoints").mkdir()
        filled = _until_committed(folder, 20)
        size = sum(path.stat().st_size for path in (folder / "checkpoints").iterdir()) / 1e6
        print(f"{_KEYS:,} keys, {size:,.0f} MB in the checkpoint folder, after {filled:.1f} s")
        taken = [_until_committed(folder, 1) for _ in range(_RUNS)]
        texts = ", ".join(f"{each:.1f}" for each in taken)
        print(
            f"from the command to the next commit: {texts} s, median {statistics.median(taken):.1f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
