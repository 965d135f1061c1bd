"""A flood of log lines in a harness that has this package."""

import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.environments import ProcessEnvironment

from beam_spark_runner.harness.sdk_workers import sdk_workers
from tests.harness.conftest import BARE, Collected, stage_in

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(120)]

LINES = 100_000


class Floods(beam.DoFn):  # type: ignore[misc]
    def process(self, element: bytes) -> Iterator[bytes]:
        for number in range(int(element)):
            logging.getLogger("user.module").info("line %d", number)
        yield element


@pytest.fixture
def process() -> Iterator[Any]:
    yield ProcessEnvironment("")
    sdk_workers.stop()


def test_what_is_left_out_is_counted_to_the_last_line(
    process: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Beam's own handler would drop most of them, and say nothing."""

    def build(p: beam.Pipeline) -> Any:
        step = beam.ParDo(Floods()).with_output_types(bytes)
        return p | beam.Impulse() | step | beam.Reshuffle()

    stage = stage_in(process, build)
    collected = Collected()
    for _ in range(2):
        bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {})
        bundle.push([b"%d" % LINES], [BARE])
        bundle.finish()
    assert len(collected.values) == 2
    text, deadline = "", time.monotonic() + 20
    while sum(counted(text)) < 2 * LINES and time.monotonic() < deadline:
        time.sleep(0.1)  # they come by a stream of their own
        text += capfd.readouterr().err
    lines, left_out = counted(text)
    assert 1_000 <= lines < 3_000
    assert lines + left_out == 2 * LINES


def counted(text: str) -> tuple[int, int]:
    """Return how many lines came, and how many were left out."""
    came = sum(line.startswith("INFO: line ") for line in text.splitlines())
    return came, sum(map(int, re.findall(r"^(\d+) log lines were left out", text, re.MULTILINE)))
