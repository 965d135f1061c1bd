"""User code that blocks in a streaming pipeline, and the run that continues after it."""

import functools
import logging
import os
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import StuckBundleError
from tests.harvest import BEAMS_OWN, REUSED_PROCESS, harvest
from tests.numbers_source import Log, Numbers, pairs
from tests.stateful import Number

pytestmark = pytest.mark.spark

EMBEDDED_S, PROCESS_S = 20, 60
"""Less is not enough to set DoFns up where the machine is busy, and counts as standing still."""


def open_for_ever(pair: tuple[str, int], fifo: str) -> tuple[str, int]:
    """Block where nothing can be raised in Python, as long as the FIFO is there."""
    if pair[1] == 7 and Path(fifo).exists():
        Path(fifo).read_text()
    return pair


@pytest.mark.parametrize(
    ("flags", "place", "timeout_s"),
    [
        pytest.param((), "claim", EMBEDDED_S, id="claim, embedded", marks=pytest.mark.rare),
        pytest.param((), "step", EMBEDDED_S, id="step, embedded", marks=pytest.mark.rare),
        pytest.param(REUSED_PROCESS, "step", PROCESS_S, id="step, process", marks=pytest.mark.rare),
        pytest.param(
            BEAMS_OWN, "claim", PROCESS_S, id="claim, Beam's own harness", marks=pytest.mark.rare
        ),
    ],
)
def test_it_fails_with_step_and_stack_and_can_continue(
    spark_session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    flags: tuple[str, ...],
    place: str,
    timeout_s: int,
) -> None:
    (tmp_path / "notes").mkdir()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    log = Log(folder=str(tmp_path / "notes"), checkpoints=str(tmp_path / "checkpoints"))
    blocks = {"blocks_at": 7, "fifo": str(fifo)} if place == "claim" else {}
    source = Numbers(name="s", end=12, at_once=3, log=log, **blocks)  # type: ignore[arg-type]
    options = (f"--checkpoint_dir={log.checkpoints}", "--batch_interval_millis=50", *flags)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = pairs(source)(p)
        if place == "step":
            block = beam.Map(functools.partial(open_for_ever, fifo=str(fifo)))
            numbers |= "Block" >> block.with_output_types(tuple[str, int])
        return {"numbers": numbers | beam.ParDo(Number())}

    caplog.set_level(logging.WARNING)
    step = "ReadFromUnboundedSource" if place == "claim" else "Block"
    with pytest.raises(StuckBundleError, match=step) as caught:
        harvest(spark_session, build, *options, f"--stuck_bundle_timeout={timeout_s}")
    where = "in advance\n" if place == "claim" else "in open_for_ever\n"
    assert where in caught.value.stack
    warnings = [
        each.getMessage() for each in caplog.records if "has made no progress" in each.message
    ]
    assert any(step in text and where in text for text in warnings)
    assert log.committed()
    fifo.unlink()
    found = harvest(spark_session, build, *options)
    seen = [n for _, n in found["numbers"]]
    assert seen
    assert seen == list(range(seen[0], 12))  # state and source continue from one epoch
