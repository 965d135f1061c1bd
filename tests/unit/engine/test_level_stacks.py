"""The level in the stack of a worker that crashed."""

import faulthandler
import tempfile
import threading

import pytest

from beam_spark_runner.engine.level_stacks import level_in, named_by_level


def stack_in(level: int) -> str:
    """Return the stack of a thread that runs a level, as a crash shows it."""
    with tempfile.TemporaryFile("w+") as file:
        target = named_by_level(level, faulthandler.dump_traceback)
        thread = threading.Thread(target=target, args=(file,))
        thread.start()
        thread.join()
        file.seek(0)
        return file.read()


@pytest.mark.parametrize("level", [0, 7, 123])
def test_the_level_of_a_crash(level: int) -> None:
    assert level_in(stack_in(level)) == level


def test_arguments_are_passed_on() -> None:
    got: list[object] = []
    named_by_level(3, got.append)("argument")
    assert got == ["argument"]


@pytest.mark.parametrize("text", ["", "killed", 'File "x.py", line 3 in beam_level_of_mine'])
def test_other_stacks_name_no_level(text: str) -> None:
    assert level_in(text) is None
