"""Lines, floods of them, and warnings of a harness that has this package."""

import logging
import re
import time
import warnings
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, metrics_pb2
from apache_beam.transforms.environments import ProcessEnvironment

from beam_spark_runner.backchannel.log_lines import STDERR, category_of, logger_of
from beam_spark_runner.harness.beam.plugin.block_edges import LOG_MARK_URN
from beam_spark_runner.harness.fn_api.services.logging_service import LogStream
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses
from tests.harness.conftest import BARE, Collected, stage_in

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(120)]

LINES = 100_000


class Floods(beam.DoFn):  # type: ignore[misc]
    def process(self, element: bytes) -> Iterator[bytes]:
        for number in range(int(element)):
            logging.getLogger("user.module").info("line %d", number)
        yield element


class Warns(beam.DoFn):  # type: ignore[misc]
    def process(self, _: Any) -> Iterator[bytes]:
        warnings.warn("row by row", BytesWarning, stacklevel=1)
        logging.getLogger("user.module").info("said at last")
        yield b""


@pytest.fixture
def process() -> Iterator[Any]:
    yield ProcessEnvironment("")
    sdk_harnesses.stop()


def test_what_is_left_out_is_counted_to_the_last_line(
    process: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Beam's own handler would drop most of them, and say nothing."""

    def build(p: beam.Pipeline) -> Any:
        step = beam.ParDo(Floods()).with_output_types(bytes)
        return p | beam.Impulse() | step | beam.Reshuffle()

    stage = stage_in(process, build)
    collected = Collected()
    began = time.monotonic()
    for _ in range(2):
        bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, collected), {})
        bundle.push([b"%d" % LINES], [BARE])
        bundle.finish()
    assert len(collected.values) == 2
    text, deadline = "", time.monotonic() + 60
    while sum(counted(text)) < 2 * LINES and time.monotonic() < deadline:
        time.sleep(0.1)  # they come by a separate stream
        text += capfd.readouterr().err
    lines, left_out = counted(text)
    assert 1_000 <= lines <= 2_001 + 100 * (time.monotonic() - began)
    assert lines + left_out == 2 * LINES


@pytest.mark.parametrize("groups", [False, True])
def test_lines_and_warnings_are_there_when_the_bundle_ends(
    process: Any,
    monkeypatch: pytest.MonkeyPatch,
    groups: bool,
) -> None:
    entries: list[beam_fn_api_pb2.LogEntry] = []
    monkeypatch.setattr(STDERR, "log", entries.append)

    def build(p: beam.Pipeline) -> Any:
        pairs = beam.Map(lambda each: (each, each)).with_output_types(tuple[bytes, bytes])
        elements = p | beam.Impulse() | pairs
        if groups:
            elements |= beam.GroupByKey()
        odd = elements | "odd" >> beam.ParDo(Warns()).with_output_types(bytes)
        return odd | beam.Reshuffle()

    stage = stage_in(process, build, stage=int(groups))
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, Collected()), {})
    bundle.push([(b"x", [b"y"]) if groups else b""], [BARE])
    result = bundle.finish()
    warning, line = entries
    assert category_of(warning) is BytesWarning
    assert warning.message == "row by row"
    assert warning.log_location.rpartition(":")[0] == __file__
    assert "odd" in warning.transform_id
    assert category_of(line) is None
    assert line.message == "said at last"
    assert logger_of(line) == "user.module"
    assert line.log_location.rpartition(":")[0] == __file__
    urns = [metrics_pb2.MonitoringInfo.FromString(info).urn for info in result.monitoring_infos]
    assert urns
    assert LOG_MARK_URN not in urns


def test_nobody_waits_for_a_stream_that_has_ended() -> None:
    logs = LogStream()
    logs.begin()
    logs.reach(3)
    assert logs.wait_for(3, 0.0)
    assert not logs.wait_for(4, 0.01)
    logs.end()
    assert not logs.wait_for(4, 60.0)
    logs.begin()
    assert not logs.wait_for(4, 0.01)


def counted(text: str) -> tuple[int, int]:
    """Return how many lines came, and how many were dropped."""
    came = sum(line.startswith("INFO: line ") for line in text.splitlines())
    return came, sum(map(int, re.findall(r"^(\d+) log lines were dropped", text, re.MULTILINE)))
