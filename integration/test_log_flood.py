"""A million log lines: they fail nothing, take no memory, and are cut with a count."""

import logging
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest

from tests.harvest import PROCESS, run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

LINES, TASKS = 1_000_000, 4
MAX_S = 120.0  # many times what it takes


class Floods(beam.DoFn):  # type: ignore[misc]
    def process(self, element: int) -> Iterator[int]:
        for number in range(element):
            logging.getLogger("user.module").info("line %d", number)
        yield element


@pytest.mark.parametrize("flags", [(), PROCESS], ids=["embedded", "PROCESS"])
def test_a_million_lines(local_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> None:
        each = p | beam.Create([LINES // TASKS] * TASKS) | beam.Reshuffle()
        each | "Flood" >> beam.ParDo(Floods())

    began = time.monotonic()
    result = run(local_session, build, *flags, "--parallelism=2")
    assert time.monotonic() - began < MAX_S
    *lines, last = [each.message_text for each in result.messages()]
    assert "log lines were dropped because there were too many" in last
    left_out = int(last.split()[0].replace(",", ""))
    assert 1_000 <= len(lines) < 20_000
    assert len(lines) + left_out == LINES
