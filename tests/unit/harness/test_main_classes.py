"""Classes of a program's main module, in a worker in which ``__main__`` is something else."""

import enum
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apache_beam.internal import pickler
from apache_beam.internal.cloudpickle import cloudpickle

from beam_spark_runner.harness import main_classes
from beam_spark_runner.harness.beam.dynamic_classes import DynamicClasses
from beam_spark_runner.harness.main_classes import MainModule, coded_main_classes

PROGRAM = """
import dataclasses, enum, typing

class Plain:
    def __init__(self, n):
        self.n = n

class Slots:
    __slots__ = ("n",)

@dataclasses.dataclass(frozen=True)
class Data:
    n: int

class Colour(enum.Enum):
    RED = 1

class Pair(typing.NamedTuple):
    n: int

class OwnError(ValueError):
    class Inner:
        pass
"""
NAMES = ["Plain", "Slots", "Data", "Colour", "Pair", "OwnError", "OwnError.Inner"]


@pytest.fixture(autouse=True)
def main_as_before() -> Iterator[None]:
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before


@pytest.fixture
def program() -> Any:
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(PROGRAM, vars(module))
    return module


def in_worker(coded: main_classes.CodedClasses) -> MainModule:
    module = MainModule(coded)
    module.serve()
    return module


def test_what_is_sent(program: Any) -> None:
    program.Renamed = program.Plain  # pickle would not look it up by that name
    program.Imported = enum.Enum
    assert list(coded_main_classes()) == NAMES


@pytest.mark.parametrize(
    "make",
    [
        lambda main: main.Plain(1),
        lambda main: main.Slots(),
        lambda main: main.Data(1),
        lambda main: main.Colour.RED,
        lambda main: main.Pair(1),
        lambda main: main.OwnError("x"),
        lambda main: main.OwnError.Inner(),
        lambda main: main.Plain,
    ],
)
def test_instances_are_found_by_name(program: Any, make: Callable[[Any], Any]) -> None:
    coded = pickle.dumps(make(program))
    worker = in_worker(coded_main_classes())
    found = pickle.loads(coded)
    assert pickle.dumps(found) == coded
    if not isinstance(found, type):
        assert getattr(worker, type(found).__name__, worker.OwnError.Inner) is type(found)


def test_a_class_is_the_same_however_it_arrives(program: Any) -> None:
    """By value in a DoFn, and by name in an element; whichever comes first."""
    by_value = pickler.dumps(lambda: program.Data(7))
    by_name = pickle.dumps(program.Data(7))
    in_worker(coded_main_classes())
    assert pickle.loads(by_name) == pickler.loads(by_value)()
    assert pickle.dumps(pickler.loads(by_value)()) == by_name


def test_classes_in_classes_are_found_by_name(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a DoFn has brought them before; cloudpickle does not send their full names."""
    by_value = pickler.dumps(program.OwnError.Inner)
    coded = coded_main_classes()
    for name in ("_DYNAMIC_CLASS_TRACKER_BY_CLASS", "_DYNAMIC_CLASS_TRACKER_BY_ID"):
        monkeypatch.setattr(cloudpickle, name, getattr(cloudpickle, name))
    DynamicClasses().serve()
    brought = pickler.loads(by_value)
    assert brought is not program.OwnError.Inner
    in_worker(coded)
    assert type(pickle.loads(pickle.dumps(brought()))) is brought


def test_each_job_has_its_own_classes(program: Any) -> None:
    first = coded_main_classes()
    exec("class Plain:\n    version = 2", vars(program))  # a cell of a notebook, run again
    second = coded_main_classes()
    coded = pickle.dumps(program.Plain())
    jobs = MainModule(first), MainModule(second)
    for job, has_version in ((jobs[0], False), (jobs[1], True), (jobs[0], False)):
        job.serve()
        assert hasattr(pickle.loads(coded), "version") is has_version


def test_they_are_handed_over_as_text(program: Any) -> None:
    coded = {**coded_main_classes(), "Other": "it is too large"}
    assert main_classes.from_json(main_classes.to_json(coded)) == coded


def test_a_job_without_classes_leaves_the_module_of_the_process() -> None:
    in_worker({"A": "it is not there"})
    in_worker({})
    assert sys.modules["__main__"] is main_classes._OF_PROCESS


def test_other_names_are_those_of_the_process(
    program: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_classes._OF_PROCESS, "of_the_process", 7, raising=False)
    worker = in_worker(coded_main_classes())
    assert worker.of_the_process == 7
    with pytest.raises(AttributeError, match="Missing"):
        _ = worker.Missing


def test_classes_that_cannot_be_sent_say_why(program: Any) -> None:
    program.lines = (line for line in "ab")
    exec("class Reads:\n    def read(self):\n        return next(lines)", vars(program))
    exec("class Large:\n    def read(self):\n        return data", vars(program))
    program.data = os.urandom(2 << 20)
    worker = in_worker(coded_main_classes())
    with pytest.raises(AttributeError, match=r"Reads .* cannot be pickled: .* separate module"):
        _ = worker.Reads
    with pytest.raises(AttributeError, match=r"Large .* it has [\d,]+ bytes"):
        _ = worker.Large
