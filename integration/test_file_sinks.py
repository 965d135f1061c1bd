"""Streaming pipelines write each element into files once, whatever kills their programs."""

import itertools
import os
import random
import signal
import time
from pathlib import Path

import pytest

from integration.file_sinks import SHARDS, WINDOW_S, Moment, Sink, pairs_in
from integration.streams import KEYS
from integration.waiting import newest_epoch
from tests.cli.programs import Program

pytestmark = pytest.mark.timeout(1500)

COUNT = 3 * WINDOW_S
_SCRIPT = """
    from integration.file_sinks import main
    main(OPTIONS, {!r}, {!r}, {!r}, {!r}, {!r})
    """


class Runs:
    """The runs of one pipeline."""

    def __init__(self, folder: Path, sink: Sink, moment: Moment) -> None:
        self._folder, self._sink, self._moment = folder, sink, moment
        self.out, self.checkpoints = folder / "out", folder / "checkpoints"
        self.marker = folder / "died"
        self.out.mkdir()
        self._count = 0

    def start(self) -> Program:
        self._count += 1
        folder = self._folder / f"run-{self._count}"
        folder.mkdir()
        arguments = self._sink.name, self._moment.name, str(self.marker), str(self.out), COUNT
        return Program(
            folder,
            _SCRIPT.format(*arguments),
            "--spark_master_url=local[2]",
            "--batch_interval_millis=100",
            f"--checkpoint_dir={self.checkpoints}",
        )


@pytest.mark.parametrize(
    ("sink", "moment"),
    # ``make kills`` runs all of them.
    [*itertools.product(Sink, Moment)]
    if "STREAM_KILLS" in os.environ
    else [
        (Sink.TEXT, Moment.AFTER),
        (Sink.AVRO, Moment.BEFORE),
        (Sink.PARQUET, Moment.HALF),
        (Sink.FILES, Moment.AFTER),
    ],
    ids=lambda each: each.name,
)
def test_each_element_is_written_once(tmp_path: Path, sink: Sink, moment: Moment) -> None:
    """The first run dies while files get their names, the second one at any time."""
    runs, chance = Runs(tmp_path, sink, moment), random.Random(f"{sink} {moment}")
    assert runs.start().end(600).code == -signal.SIGKILL
    assert runs.marker.exists()
    until = newest_epoch(runs.checkpoints) + chance.randrange(3)
    second = runs.start()
    if second.wait_until(lambda: newest_epoch(runs.checkpoints) >= until):
        time.sleep(chance.random())  # the moment is chance's
        second.send(signal.SIGKILL)
    second.end(600)
    ended = runs.start().end(600)
    assert ended.code == 0, ended.err
    expected = sorted((f"key {key}", n) for key in range(KEYS) for n in range(COUNT))
    assert pairs_in(sink, runs.out) == expected
    if sink is not Sink.FILES:  # which has a file for each bundle
        files = [path for path in runs.out.iterdir() if path.is_file()]
        assert len(files) == SHARDS * COUNT // WINDOW_S
        assert len(list(runs.out.iterdir())) - len(files) <= 2  # folders of runs that were killed
