"""Log records become log entries of the backchannel."""

import logging
import time
from collections.abc import Iterator

import pytest
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner.backchannel.log_lines import LogHandler, is_chatter


class Collected:
    def __init__(self) -> None:
        self.entries: list[beam_fn_api_pb2.LogEntry] = []
        self.left_out = 0

    def log(self, entry: beam_fn_api_pb2.LogEntry) -> None:
        self.entries.append(entry)

    def leave_out(self, lines: int) -> None:
        self.left_out += lines


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, Collected, LogHandler]]:
    collected = Collected()
    handler = LogHandler(collected)
    found = logging.getLogger("tests.of.lines")
    found.propagate = False
    found.setLevel(logging.DEBUG)
    found.addHandler(handler)
    yield found, collected, handler
    found.removeHandler(handler)


def test_a_record_becomes_an_entry(
    logger: tuple[logging.Logger, Collected, LogHandler], capsys: pytest.CaptureFixture[str]
) -> None:
    log, collected, handler = logger
    log.info("saw %d of %s", 3, "four")
    log.log(logging.WARNING + 5, "more than a warning")
    log.log(1, "hardly")
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")
    handler.handle(logging.LogRecord("tests", logging.INFO, "file", 1, "misfit %d", ("x",), None))
    severity = beam_fn_api_pb2.LogEntry.Severity
    found = [(each.message, each.severity) for each in collected.entries]
    assert found == [
        ("saw 3 of four", severity.INFO),
        ("more than a warning", severity.WARN),
        ("failed", severity.ERROR),
    ]
    assert collected.entries[2].trace.endswith("ValueError: why")
    assert "test_log_records.py:" in collected.entries[0].log_location
    assert abs(collected.entries[0].timestamp.ToSeconds() - time.time()) < 60
    assert "Message: 'misfit %d'" in capsys.readouterr().err


def test_of_a_flood_only_some_lines_are_formatted(
    logger: tuple[logging.Logger, Collected, LogHandler],
) -> None:
    log, collected, handler = logger
    began = time.process_time()
    for number in range(200_000):
        log.info("line %d", number)
    assert time.process_time() - began < 20  # 100 us each, on the slowest machine
    handler.flush()
    assert len(collected.entries) + collected.left_out == 200_000
    assert len(collected.entries) < 20_000


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        pytest.param(
            "github.com/apache/beam/sdks/v2@v2.77.0/go/pkg/beam/runners/"
            "universal/runnerlib/execute.go:104",
            True,
            id="Go's client, a message of its job",
        ),
        pytest.param(
            "github.com/apache/beam/sdks/v2/go/pkg/beam/runners/universal/runnerlib/job.go:118",
            True,
            id="Go's client, the state of its job",
        ),
        pytest.param("/home/me/runnerlib/main.go:3", False, id="user code in Go"),
        pytest.param(
            "/x/apache_beam/runners/worker/sdk_worker_main.py:9", True, id="Python's worker"
        ),
        pytest.param("", False, id="nowhere"),
    ],
)
def test_lines_that_are_not_passed_on(where: str, expected: bool) -> None:
    entry = beam_fn_api_pb2.LogEntry(
        message="(time=now)(id=7)Claimed position: 1",
        severity=beam_fn_api_pb2.LogEntry.Severity.WARN,
        log_location=where,
    )
    assert is_chatter(entry) is expected


@pytest.mark.parametrize(
    ("where", "message", "expected"),
    [
        ("options/pipeline_options.py", "Discarding unparseable args: ['--password=x']", True),
        ("options/pipeline_options.py", "another warning", False),
        ("ml/inference/base.py", "Resource module is not available for current platform, …", True),
        ("ml/inference/base.py", "Model does not exist.", False),
    ],
)
def test_false_alarms_of_beam_are_not_passed_on(where: str, message: str, expected: bool) -> None:
    entry = beam_fn_api_pb2.LogEntry(
        message=message,
        severity=beam_fn_api_pb2.LogEntry.Severity.WARN,
        log_location=f"/x/apache_beam/{where}:570",
    )
    assert is_chatter(entry) is expected
