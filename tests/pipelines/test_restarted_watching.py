"""Sources of Beam's that watch the clock or a folder, in a run that continues after another."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.io import fileio
from apache_beam.io.watch import PollResult, Watch
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.transforms.periodicsequence import PeriodicSequence
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Duration, Timestamp

from beam_spark_runner import SparkPortableRunner
from tests.harvest import RARE_HARNESSES

EVERY_S = 0.5


class Number(beam.DoFn):  # type: ignore[misc]
    """Leaves a file for each element, named by what it is and by how many came before it."""

    NEXT = ReadModifyWriteStateSpec("next", VarIntCoder())

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def process(
        self, pair: tuple[str, str], next_state: Any = beam.DoFn.StateParam(NEXT)
    ) -> Iterator[None]:
        number = next_state.read() or 0
        next_state.write(number + 1)
        (self._folder / f"{'-'.join(pair)}-{number}").touch()
        return iter(())


class Names:
    """Polls a folder."""

    def __call__(self, folder: str) -> PollResult:
        return PollResult.incomplete(
            [TimestampedValue(name, Timestamp(1)) for name in sorted(os.listdir(folder))]
        )

    def default_output_coder(self) -> Any:
        return StrUtf8Coder()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_what_was_seen_before_is_not_seen_again(
    spark_session: Any, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """And no tick is left out, however long nothing ran."""
    watched, polled, out = (tmp_path / name for name in ("watched", "polled", "out"))
    for folder in (watched, polled, out):
        folder.mkdir()
    stop = tmp_path / "stop"
    stop.touch()
    start_s = time.time()

    def found() -> set[str]:
        return {path.name for path in out.iterdir()}

    def tick(at: float) -> tuple[str, str]:
        if stop.exists() and {"file-a-0", "poll-a-0", "tick-2-2"} <= found():
            raise RuntimeError("stopped")
        return "tick", str(round((float(at) - start_s) / EVERY_S))

    def build(p: beam.Pipeline) -> None:
        files = p | fileio.MatchContinuously(f"{watched}/*", interval=EVERY_S)
        names = (
            p
            | beam.Create([str(polled)])
            | Watch(Names(), Duration(seconds=EVERY_S), output_coder=StrUtf8Coder())
        )
        clock = p | "Clock" >> beam.Create([(start_s, float(MAX_TIMESTAMP), EVERY_S)])
        pairs = (
            files | "File" >> beam.Map(lambda each: ("file", os.path.basename(each.path))),
            names | "Name" >> beam.Map(lambda pair: ("poll", pair[1])),
            clock | PeriodicSequence() | "Tick" >> beam.Map(tick),
        )
        typed = pairs | beam.Flatten() | beam.Map(tuple).with_output_types(tuple[str, str])
        typed | beam.ParDo(Number(out))

    def run() -> Any:
        options = [f"--checkpoint_dir={tmp_path / 'checkpoints'}", *flags]
        pipeline = beam.Pipeline(
            runner=SparkPortableRunner(spark=spark_session),
            options=PipelineOptions([*options, "--batch_interval_millis=100"]),
        )
        build(pipeline)
        return pipeline.run()

    for folder in (watched, polled):
        (folder / "a").touch()
    with pytest.raises(RuntimeError, match="stopped"):
        run().wait_until_finish()
    stop.unlink()
    ticks = sum(name.startswith("tick") for name in found())
    for folder in (watched, polled):
        (folder / "b").touch()
    result = run()
    try:
        until(lambda: {"file-b-1", "poll-b-1", f"tick-{ticks + 3}-{ticks + 3}"} <= found())
    finally:
        result.cancel()
    assert result.state == PipelineState.CANCELLED
    names = found()
    assert {name for name in names if not name.startswith("tick")} == {
        f"{source}-{name}" for source in ("file", "poll") for name in ("a-0", "b-1")
    }
    seen = [name.split("-")[1:] for name in names if name.startswith("tick")]
    assert all(tick == number for tick, number in seen)  # each once, in order
    assert len(seen) > ticks
