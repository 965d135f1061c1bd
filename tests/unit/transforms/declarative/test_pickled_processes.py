"""Processes in SDK harnesses: those without this package, and those that have it twice."""

import base64
import subprocess
import sys
from typing import Any

import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.internal import cloudpickle, pickler

from beam_spark_runner.transforms import DeclarationContext, ProcessingTimer, ValueState
from beam_spark_runner.transforms.declarative import keyed_do_fn
from tests import declared
from tests.declared import NewIds

WITHOUT_US = """
import base64, sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("beam_spark_runner", "pyspark", "tests"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refusing())
for name in [name for name in sys.modules if name.split(".")[0] == "beam_spark_runner"]:
    del sys.modules[name]
from apache_beam.internal import pickler
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN
class Bag:
    def __init__(self): self.values = []
    def read(self): return list(self.values)
    def add(self, value): self.values.append(value)
    def clear(self): self.values = []
class Value(Bag):
    def read(self): return self.values[0] if self.values else None
    def write(self, value): self.values = [value]
class Timer:
    def set(self, timestamp, dynamic_timer_tag=""): print("timer", timestamp)
fn = pickler.loads(base64.b64decode(sys.argv[1]))
fn.setup()
given = Value(), Bag(), Timer()
for element in [("a", "x"), ("a", "x"), ("a", "y")]:
    made = fn.process(element, Timestamp(1), GlobalWindow(), PANE_INFO_UNKNOWN, *given)
    print(list(made))
names = "state_0", "state_1", "timer_0"
context = dict(key="a", timestamp=Timestamp(100), window=GlobalWindow(), tag="")
print(fn.on_timer_0(**context, **dict(zip(names, given))))
fn.teardown()
"""
PRINTED = """timer Timestamp(100)
[('a', 'x', 1)]
[]
timer Timestamp(100)
[('a', 'y', 2)]
[('a', [('x', 1), ('y', 2)])]
"""


ATTRIBUTES = """
import base64, sys
from apache_beam.internal import pickler
fn = pickler.loads(base64.b64decode(sys.argv[1]))
fn.setup()
print(fn._state_names, fn._timer_names)
fn.teardown()
"""


@pytest.mark.parametrize("lateness_us", [None, 0], ids=["here", "elsewhere"])
def test_harnesses_need_no_copy_of_this_package(lateness_us: int | None) -> None:
    fn = keyed_do_fn.KeyedProcessDoFn(NewIds(), lateness_us=lateness_us)
    cloudpickle.register_pickle_by_value(declared)  # as a main module
    try:
        coded = base64.b64encode(pickler.dumps(fn)).decode()
    finally:
        cloudpickle.unregister_pickle_by_value(declared)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_US, coded], capture_output=True, text=True, check=False
    )
    assert done.stdout == PRINTED, done.stderr


def test_processes_of_installed_modules_use_the_package_of_the_harness() -> None:
    coded = base64.b64encode(pickler.dumps(keyed_do_fn.KeyedProcessDoFn(NewIds()))).decode()
    program = WITHOUT_US.replace('"beam_spark_runner", ', "").replace(', "tests"', "")
    done = subprocess.run(
        [sys.executable, "-c", program, coded], capture_output=True, text=True, check=False
    )
    assert done.stdout == PRINTED, done.stderr


def test_a_class_of_the_main_module_may_extend_one_of_an_installed_module() -> None:
    """The classes of its states are then pickled by value, and those of the other one are not."""

    class More(NewIds):
        again = ValueState("again", VarIntCoder())
        later = ProcessingTimer("later")

        def declare_on_processing_time(self, ctx: DeclarationContext) -> Any:
            return lambda _: None

    coded = base64.b64encode(pickler.dumps(keyed_do_fn.KeyedProcessDoFn(More()))).decode()
    done = subprocess.run(
        [sys.executable, "-c", ATTRIBUTES, coded], capture_output=True, text=True, check=False
    )
    assert done.stdout == "['again', 'count', 'seen'] ['end', 'later']\n", done.stderr
