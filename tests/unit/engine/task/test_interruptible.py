import gc
import subprocess
import sys
import textwrap
import threading

import pytest

from beam_spark_runner.engine.task.interruptible import Interruptible


class InterruptedByTestError(Exception):
    pass


def test_a_thread_is_interrupted_inside_only() -> None:
    interruptible = Interruptible(InterruptedByTestError)
    began, goes_on = threading.Event(), threading.Event()
    happened: list[str] = []

    def run() -> None:
        try:
            with interruptible.running():
                began.set()
                while True:
                    pass
        except InterruptedByTestError:
            happened.append("interrupted")
        goes_on.wait(60)
        happened.append("ended")

    interruptible.interrupt()  # nobody is inside
    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(60)
    interruptible.interrupt()
    while not happened:
        pass
    interruptible.interrupt()  # it has left
    goes_on.set()
    thread.join(60)
    assert happened == ["interrupted", "ended"]


def test_it_comes_inside_or_not_at_all() -> None:
    interruptible = Interruptible(InterruptedByTestError)
    stop = threading.Event()
    count = rounds = 0

    def interrupt() -> None:
        while not stop.is_set():
            interruptible.interrupt()

    thread = threading.Thread(target=interrupt)
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # errors come between any two calls
    thread.start()
    try:
        while count < 50 or rounds < 50_000:
            rounds += 1
            try:
                with interruptible.running():
                    sum(range(50))
            except InterruptedByTestError:
                count += 1
            for _ in range(20):  # not here
                list(map(abs, range(5)))
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(often)


def test_a_thread_is_interrupted_that_starts_other_threads(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Not one of the others, which CPython 3.11 has under its number until they run."""
    # CPython drops an error that comes within a callback of a weak reference, such as this has, or
    # the threads of other tests, if they were collected now.
    monkeypatch.setattr(threading, "_dangling", set())
    gc.collect()
    gc.disable()
    request.addfinalizer(gc.enable)
    interruptible = Interruptible(InterruptedByTestError)
    began, happened = threading.Event(), threading.Event()
    others: list[threading.Thread] = []  # an error that comes while one is deleted is lost

    def run() -> None:
        try:
            with interruptible.running():
                began.set()
                while True:
                    others.append(threading.Thread(target=int, daemon=True))
                    others[-1].start()
                    others[-1].join()
        except InterruptedByTestError:
            happened.set()

    for _ in range(50):
        began.clear()
        happened.clear()
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert began.wait(60)
        interruptible.interrupt()
        assert happened.wait(30)
        thread.join()


def test_no_interrupt_comes_inside_of_a_shelter() -> None:
    interruptible = Interruptible(InterruptedByTestError)
    happened: list[str] = []
    with pytest.raises(InterruptedByTestError), interruptible.running():  # noqa: PT012
        with interruptible.sheltered():
            thread = threading.Thread(target=interruptible.interrupt)
            thread.start()
            thread.join()
            happened.append("inside")
        happened.append("outside")
        interruptible.interrupt()
        while True:
            pass
    assert happened == ["inside", "outside"]


def test_what_is_raised_inside_passes() -> None:
    with pytest.raises(KeyError), Interruptible(InterruptedByTestError).running():
        raise KeyError


def test_interrupts_that_came_too_late_leave_nothing_for_tracers() -> None:
    program = """
        import sys, threading
        from beam_spark_runner.engine.task.interruptible import Interruptible

        interruptible = Interruptible(KeyError)
        stop = threading.Event()

        def interrupt():
            while not stop.is_set():
                interruptible.interrupt()

        thread = threading.Thread(target=interrupt)
        thread.start()
        for _ in range(2_000):
            try:
                with interruptible.running():
                    sum(range(50))
            except KeyError:
                pass
        stop.set()
        thread.join()
        sys.settrace(lambda *_: None)
        (lambda: None)()
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60)
