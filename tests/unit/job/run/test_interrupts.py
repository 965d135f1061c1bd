"""What Ctrl-C does to a pipeline, and what it shows."""

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_spark_runner.job.run.interrupts import FirstInterrupt
from beam_spark_runner.job.watching.progress_line import ProgressLine


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    hook, handler = sys.excepthook, signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    sys.excepthook = hook
    signal.signal(signal.SIGINT, handler)


def interrupted(interrupt: FirstInterrupt) -> KeyboardInterrupt:
    with pytest.raises(KeyboardInterrupt) as raised, interrupt.raises():
        signal.raise_signal(signal.SIGINT)
    return raised.value


def test_the_first_interrupt_is_answered_on_the_line(tmp_path: Path) -> None:
    with (tmp_path / "err").open("w") as err:
        line = ProgressLine(err, 0.0, clock=lambda: 65.0)
        interrupted(FirstInterrupt(line))
        line.close()
    assert (tmp_path / "err").read_text() == "1:05 · cancelling… again to leave at once\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_ends_the_program_shows_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = interrupted(FirstInterrupt(None))
    sys.excepthook(KeyboardInterrupt, error, error.__traceback__)
    assert capsys.readouterr().err == "KeyboardInterrupt\n"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def logs_that_it_is_interrupted() -> None:
    """Raise as Py4J does, which uses the root logger, too."""
    logging.error("of the program")
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        logging.exception("KeyboardInterrupt while sending command.")
        try:
            raise OSError("the connection is closed already")
        except OSError:
            logging.getLogger("py4j.clientserver").exception("while shutting down connection")
        raise


def test_what_passes_an_interrupt_on_does_not_log_it(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt), FirstInterrupt(None).raises():
        logs_that_it_is_interrupted()
    logging.error("after it", exc_info=KeyboardInterrupt())
    assert caplog.messages == ["of the program", "after it"]


def test_other_interrupts_are_shown_as_usual(capsys: pytest.CaptureFixture[str]) -> None:
    interrupted(FirstInterrupt(None))
    other = KeyboardInterrupt("another one")
    sys.excepthook(KeyboardInterrupt, other, None)
    assert "another one" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_one_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr("os.kill", lambda _, number: left.append(number))
    interrupt = FirstInterrupt(None)
    with interrupt.raises():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):  # which the signal would not let happen
            signal.raise_signal(signal.SIGINT)
        assert left == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def test_a_program_with_a_separate_handler_keeps_it() -> None:
    def mine(*_: object) -> None: ...

    signal.signal(signal.SIGINT, mine)
    with FirstInterrupt(None).raises():
        assert signal.getsignal(signal.SIGINT) is mine
    assert signal.getsignal(signal.SIGINT) is mine


def test_another_thread_gets_no_signals() -> None:
    seen = []

    def wait() -> None:
        with FirstInterrupt(None).raises():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
