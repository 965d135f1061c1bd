"""The name of a program, and when it has started."""

import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from beam_spark_runner.job.watching import program_start


@pytest.mark.parametrize(
    ("module", "argument", "name"),
    [
        (None, "examples/wordcount.py", "wordcount"),
        ("examples.wordcount", "/there/examples/wordcount.py", "wordcount"),
        ("examples.words.__main__", "/there/examples/words/__main__.py", "words"),
        (None, "-c", ""),
        (None, "-", ""),
        (None, "", ""),
    ],
)
def test_the_name_of_a_program(
    monkeypatch: pytest.MonkeyPatch, module: str | None, argument: str, name: str
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = SimpleNamespace(name=module) if module else None  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", [argument])
    assert program_start.script_name() == name


def test_the_first_pipeline_counts_from_the_start_of_its_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program_start, "_is_first", True)
    before = time.monotonic()
    first, second = program_start.began_s(), program_start.began_s()
    assert first < before <= second


def test_a_pipeline_that_a_person_types_counts_from_its_own_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program_start, "_is_first", True)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    before = time.monotonic()
    assert program_start.began_s() >= before
