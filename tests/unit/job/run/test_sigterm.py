"""What SIGTERM does, and where a program is warned that it does not drain."""

import contextlib
import signal
import threading
from collections.abc import Iterator

import pytest

from beam_spark_runner.job.run.sigterm import FirstSigterm, sigterm_raises


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_first_one_drains_and_the_second_one_ends_the_program() -> None:
    drained: list[int] = []
    with sigterm_raises(FirstSigterm(lambda: drained.append(1))):
        signal.raise_signal(signal.SIGTERM)
        assert drained == [1]
        with pytest.raises(SystemExit) as raised:
            signal.raise_signal(signal.SIGTERM)
    assert raised.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_second_one_ends_a_program_that_waits_again_and_again() -> None:
    drained: list[int] = []
    first = FirstSigterm(lambda: drained.append(1))
    with sigterm_raises(first):
        signal.raise_signal(signal.SIGTERM)
    with sigterm_raises(first), pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    assert drained == [1]


def test_a_program_with_a_separate_handler_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    got: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
    with sigterm_raises():
        assert caplog.text == ""
    with sigterm_raises(FirstSigterm(lambda: None)):
        signal.raise_signal(signal.SIGTERM)
    assert got == [signal.SIGTERM]
    assert (
        "--drain_on_sigterm has no effect: this program has its own handler of SIGTERM"
        in caplog.text
    )


def test_sigterm_in_another_thread_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def wait() -> None:
        with contextlib.ExitStack() as waiting:
            waiting.enter_context(sigterm_raises(FirstSigterm(lambda: None)))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert "wait_until_finish does not run in the main thread" in caplog.text
