"""Names of a program's main module, in a worker that runs what dill has pickled."""

import dataclasses
import os
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from apache_beam.internal import cloudpickle_pickler

from beam_spark_runner.harness.beam.dill_main import show_dill
from beam_spark_runner.harness.beam.dynamic_classes import DynamicClasses
from beam_spark_runner.harness.failures import failure_of
from beam_spark_runner.harness.main_classes import ALL, CodedClasses, MainModule
from beam_spark_runner.harness.main_names import coded_main_names

dill_pickler: Any = pytest.importorskip("apache_beam.internal.dill_pickler", reason="an extra")

PROGRAM = """
import concurrent, dataclasses, enum, math, typing

class Plain:
    def __init__(self, n):
        self.n = n

class Child(Plain):
    def __init__(self, n):
        super().__init__(n)

class Slots:
    __slots__ = ("n",)

@dataclasses.dataclass
class Data:
    n: int
    @property
    def twice(self):
        return 2 * self.n

class Colour(enum.Enum):
    RED = 1

class Pair(typing.NamedTuple):
    n: int

class Outer:
    class Inner:
        def method(self): ...

class Reads:
    def read(self):
        return rate

class Restored:
    def __setstate__(self, state):
        self.rate = rate_at_present()

def rate_at_present():
    return rate

rate = 1
restored = Restored()
restored.any = "state"
several = [rate, Plain]
same = several

class Registered:
    of_names = {}
    def __init_subclass__(cls):
        Registered.of_names[cls.__name__] = cls

class First(Registered):
    pass
"""


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever tests set here ends with them."""
    dill, cloudpickle = dill_pickler.dill.dill, cloudpickle_pickler.cloudpickle
    for module, name in (
        (dill, "_main_module"),
        (dill, "_create_type"),
        (cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS"),
        (cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setitem(dill_pickler.settings, "dill_byref", None)


@pytest.fixture
def program() -> Any:
    module = sys.modules["__main__"] = dill_pickler.dill.dill._main_module = ModuleType("__main__")
    exec(PROGRAM, vars(module))
    return module


class Job:
    """What a job has in a worker."""

    def __init__(self, coded: CodedClasses) -> None:
        self._classes = DynamicClasses()
        self.main = MainModule(coded)
        self.serve()

    def serve(self) -> None:
        self._classes.serve()
        self.main.serve()
        show_dill()


def function(program: Any, source: str) -> Any:
    """Return a function of the program."""
    return eval(f"lambda: {source}", vars(program))


@pytest.mark.parametrize(
    ("source", "words", "value"),
    [
        ("rate", {"rate"}, 1),
        ("rate_at_present()", {"rate_at_present"}, 1),
        ("Reads().read()", {"Reads"}, 1),
        ("math.floor(1.5)", {"math"}, 1),
        ("concurrent.futures.thread.__name__", {"concurrent", "futures", "thread"}, None),
        ("several is same and several[1] is Plain", {"several", "same"}, True),
        ("restored.rate", {"restored"}, 1),
        ("Registered.of_names['First'] is First", {"Registered", "First"}, True),
        ("[f.name for f in dataclasses.fields(Data)]", {"Data", "dataclasses"}, ["n"]),
        ("Colour(1) is Colour.RED", {"Colour"}, True),
    ],
)
def test_functions_find_what_they_use(
    program: Any, source: str, words: set[str], value: object
) -> None:
    import concurrent.futures.thread

    by_value = dill_pickler.dumps(function(program, source))
    job = Job(coded_main_names(words))
    found = dill_pickler.loads(by_value)
    assert found.__globals__ is vars(job.main)
    assert found() == (concurrent.futures.thread.__name__ if value is None else value)


@pytest.mark.parametrize(
    "make",
    [
        lambda main: main.Plain(1),
        lambda main: main.Child(1),
        lambda main: main.Slots(),
        lambda main: main.Data(1),
        lambda main: main.Pair(1),
        lambda main: main.Outer.Inner(),
    ],
)
@pytest.mark.parametrize("by_value_first", [True, False])
def test_a_class_is_the_same_however_it_arrives(
    program: Any, make: Callable[[Any], Any], by_value_first: bool
) -> None:
    value = make(program)
    # Beam has pickled and unpickled it once, when it is part of a pipeline.
    by_value = dill_pickler.dumps([dill_pickler.roundtrip([value])[0]])
    by_name = pickle.dumps(value)
    job = Job(coded_main_names(frozenset()))
    if by_value_first:
        one, other = type(dill_pickler.loads(by_value)[0]), type(pickle.loads(by_name))
    else:
        other, one = type(pickle.loads(by_name)), type(dill_pickler.loads(by_value)[0])
    assert one is other
    assert one in (vars(job.main).get(one.__name__), job.main.Outer.Inner)
    assert pickle.loads(pickle.dumps(dill_pickler.loads(by_value)[0])) is not None
    again = dill_pickler.loads(dill_pickler.dumps([one]))[0]
    assert again is one, "Beam pickles steps again where they run"


def test_an_earlier_class_of_the_same_name_is_another_one(program: Any) -> None:
    """As a notebook has it when a cell was changed and run again."""
    by_value = dill_pickler.dumps([program.Plain(1)])
    exec("class Plain:\n    def __init__(self, n):\n        self.n = 2 * n", vars(program))
    of_a_function = {"__module__": "__main__", "method": lambda self: None}
    other = dill_pickler.dumps([type("Data", (), of_a_function)()])
    job = Job(coded_main_names(frozenset()))
    old = dill_pickler.loads(by_value)[0]
    assert (old.n, type(old)(1).n, job.main.Plain(1).n) == (1, 1, 2)
    assert type(dill_pickler.loads(other)[0]) is not job.main.Data


def test_each_job_has_its_own_names(program: Any) -> None:
    reads = dill_pickler.dumps(function(program, "(rate, Reads().read(), restored.rate)"))
    words = {"rate", "Reads", "restored"}
    first = coded_main_names(words)
    program.rate = 2
    second = coded_main_names(words)
    jobs = Job(first), Job(second)
    for job, rate in ((jobs[0], 1), (jobs[1], 2), (jobs[0], 1)):
        job.serve()
        assert dill_pickler.loads(reads)() == (rate,) * 3


def test_only_what_is_used_is_sent(program: Any) -> None:
    class Refuses:
        def __reduce__(self) -> Any:
            raise AssertionError

    program.unused = Refuses()
    assert {*coded_main_names({"rate"})} == {ALL, "Outer.Inner"}


def test_what_cannot_be_sent_says_why(program: Any) -> None:
    program.lines = (line for line in "ab")
    program.data = os.urandom(2 << 20)
    program.numbers = list(range(1 << 20))
    exec("def read():\n    return next(lines)", vars(program))
    reads = dill_pickler.dumps(program.read)
    job = Job(coded_main_names({"read", "data", "numbers"}))
    with pytest.raises(AttributeError, match=r"lines .* cannot be pickled: .* separate module"):
        _ = job.main.lines
    for name in ("data", "numbers"):
        with pytest.raises(AttributeError, match=rf"{name} .* it has more than 1,048,576 bytes"):
            getattr(job.main, name)
    with pytest.raises(NameError) as raised:
        dill_pickler.loads(reads)()
    assert "lines of the main module is not known" in failure_of(raised.value, "s").traceback_text
    other = failure_of(NameError("x", name="absent"), "s").traceback_text
    assert "of the main module" not in other


def test_what_cannot_be_unpickled_says_what_to_do(program: Any) -> None:
    class Gone:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    program.gone = Gone()
    coded = coded_main_names({"gone"})
    for _ in range(2):  # another task of the job finds them missing, too
        with pytest.raises(pickle.UnpicklingError, match=r"no number.*separate module"):
            Job(coded)


def test_dill_names_only_itself_in_what_it_writes(program: Any) -> None:
    """Not this package, which other processes may not have."""
    Job(coded_main_names(frozenset()))
    coded = dill_pickler.dill.dumps(type("Local", (), {"__module__": "__main__"}))
    assert b"_create_type" in coded
    assert b"beam_spark_runner" not in coded


def test_dataclasses_by_value_have_their_fields(program: Any) -> None:
    by_value = dill_pickler.dumps([program.Data(1)])
    Job(coded_main_names(frozenset()))
    found = dill_pickler.loads(by_value)[0]
    assert dataclasses.asdict(found) == {"n": 1}
    assert found.twice == 2
