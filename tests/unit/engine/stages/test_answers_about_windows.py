"""Wrong answers about windows are errors that name the step and the SDK."""

from typing import Any, cast

import pytest
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.window import GlobalWindows, IntervalWindow

from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.engine.program import HelperProgram
from beam_spark_runner.engine.stages import window_merger
from beam_spark_runner.engine.stages.window_merger import merge_windows
from beam_spark_runner.engine.worker.runtime import JobRuntime
from beam_spark_runner.harness.grouping.sdk_window_fn import SdkWindowFn
from beam_spark_runner.semantics.merging import merged_windows

JAVA = "apache/beam_java17_sdk:2.65.0"
NO_JOB = cast(JobRuntime, None)
COUNT = b"\0\0\0"


class _Program:
    """The parts of a HelperProgram that errors name."""

    name = "Group"

    class description:
        coded_environment = beam_runner_api_pb2.Environment(
            capabilities=[f"beam:version:sdk_base:{JAVA}"]
        ).SerializeToString()


PROGRAM = cast(HelperProgram, _Program)


def merged(*windows: tuple[bytes, list[bytes]]) -> bytes:
    """Encode an answer: no window stays as it is."""
    coded = [b"\0", COUNT + b"\0", COUNT + bytes([len(windows)])]
    for window, parts in windows:
        coded.append(bytes([len(window)]) + window + COUNT + bytes([len(parts)]))
        coded += (bytes([len(part)]) + part for part in parts)
    return b"".join(coded)


def ask(monkeypatch: pytest.MonkeyPatch, *answers: bytes) -> Any:
    values = [GlobalWindows.windowed_value(answer) for answer in answers]
    monkeypatch.setattr(window_merger, "run_helper", lambda *_: (values, ()))
    return merge_windows(NO_JOB, PROGRAM, [b"a", b"b"])


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        pytest.param([], "0 answers", id="no answer"),
        pytest.param([merged(), merged()], "2 answers", id="two answers"),
        pytest.param([b""], "cut off", id="an empty answer"),
        pytest.param([merged((b"c", [b"a", b"x"]))], "1 windows are merged", id="another window"),
        pytest.param([merged((b"c", [b"a"]), (b"d", [b"a"]))], "two others", id="merged twice"),
    ],
)
def test_wrong_answers_about_windows_are_protocol_errors(
    answers: list[bytes], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FnApiProtocolError, match=problem) as raised:
        ask(monkeypatch, *answers)
    assert str(raised.value).startswith(f"Group: the SDK {JAVA} was asked about windows")


def test_a_right_answer_is_the_merged_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = merged((b"c", [b"a", b"b"]))
    assert ask(monkeypatch, answer) == [(b"c", [b"a", b"b"])]


@pytest.mark.parametrize("result", [b"", b"\0" * 8, b"\x80" + b"\0" * 7 + b"\x80"])
def test_windows_merged_into_malformed_bytes_are_a_protocol_error(result: bytes) -> None:
    window_fn = SdkWindowFn(IntervalWindowCoder(), lambda windows: [(result, windows)])
    with pytest.raises(FnApiProtocolError, match="malformed"):
        merged_windows(window_fn, [IntervalWindow(0, 1), IntervalWindow(1, 2)])
