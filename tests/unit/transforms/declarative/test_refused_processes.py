"""Processes, states and steps that are refused when the pipeline is built."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import PickleCoder, VarIntCoder

from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.transforms import (
    BagState,
    CombiningState,
    DeclarationError,
    DeclarativeKeyedProcess,
    EventTimer,
    MapState,
    OrderedListState,
    ProcessingTimer,
    SetState,
    ValueState,
)
from tests.unit.transforms.declarative.running import nothing, process_of

INT = VarIntCoder()
WRONG: Any = 1


def code(*_: Any) -> Any:
    return nothing


METHODS: dict[str, tuple[dict[str, Any], str]] = {
    "undeclared code of one argument": (
        {"process": lambda self, element: None},
        "process of Process must take two arguments",
    ),
    "nothing": ({}, "must define one of process and declare_process"),
    "both": ({"process": code, "declare_process": code}, "must define one of"),
    "one of a pair": ({"declare_process1": code}, "or both declare_process1 and declare_process2"),
    "one and a pair": (
        {f"declare_process{n}": code for n in ("", "1", "2")},
        "must define one of",
    ),
    "a timer without code": (
        {"declare_process": code, "end": EventTimer("end")},
        "Process has the timer 'end', but no declare_on_event_time",
    ),
    "code without a timer": (
        {"declare_process": code, "declare_on_processing_time": code, "end": EventTimer("end")},
        "but no declare_on_event_time",
    ),
    "code without any timer": (
        {"declare_process": code, "declare_on_processing_time": code},
        "Process has declare_on_processing_time, but no ProcessingTimer",
    ),
    "two of a name": (
        {"declare_process": code, "a": ValueState("s", INT), "b": SetState("s", INT)},
        "two states or timers have the name 's'",
    ),
    "a method that the runner has": (
        {"declare_process": code, "declare_all": code},
        "Process must not define declare_all",
    ),
    "a reserved name": (
        {"declare_process": code, "a": ValueState("on_window_expiration", INT)},
        "the name 'on_window_expiration'",
    ),
}


@pytest.mark.parametrize(("attributes", "problem"), METHODS.values(), ids=METHODS)
def test_refused_methods(attributes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        DeclarativeKeyedProcess(process_of(**attributes))


def test_states_belong_to_the_class() -> None:
    made = process_of(lambda _: nothing)
    vars(made)["mine"] = ValueState("mine", INT)
    with pytest.raises(DeclarationError, match=r"an attribute of the class.*self\.mine"):
        DeclarativeKeyedProcess(made)


def test_lookups_need_deterministic_coders() -> None:
    with pytest.raises(DeclarationError, match="'seen' needs a deterministic coder"):
        MapState("seen", PickleCoder(), INT)
    with pytest.raises(DeclarationError, match="'seen' needs a deterministic coder"):
        SetState("seen", PickleCoder())


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ValueState("v", int), "the state 'v' needs a coder"),
        (lambda: ValueState(INT, "v"), "ValueState needs a name"),
        (lambda: MapState("m", INT, int), "the state 'm' needs a coder"),
        (lambda: MapState("m", "text", INT), "the state 'm' needs a coder, not 'text'"),
        (lambda: SetState("s", None), "the state 's' needs a coder, not None"),
        (lambda: BagState("b", VarIntCoder), "the state 'b' needs a coder"),
        (lambda: OrderedListState("l", 1), "the state 'l' needs a coder, not 1"),
        (lambda: CombiningState("c", 1), "'c' needs a CombineFn or a function, not 1"),
        (
            lambda: CombiningState("c", beam.combiners.MeanCombineFn),
            "'c' needs a CombineFn or a function, not <class",
        ),
        (lambda: CombiningState("c", sum, "int"), "the state 'c' needs a coder, not 'int'"),
        (lambda: EventTimer(""), "EventTimer needs a name"),
        (lambda: ProcessingTimer(WRONG), "ProcessingTimer needs a name, not 1"),
        (lambda: DeclarativeKeyedProcess(WRONG), "needs an instance of KeyedProcess, not 1"),
        (
            lambda: DeclarativeKeyedProcess(process_of(code), side_inputs=WRONG),
            r"side_inputs must be a dict of AsDict.*, not 1",
        ),
        (
            lambda: DeclarativeKeyedProcess(
                process_of(code),
                side_inputs={WRONG: WRONG},
            ),
            "the name of a side input must be a string, not 1",
        ),
        (
            lambda: DeclarativeKeyedProcess(process_of(code)).with_outputs("late", WRONG),
            "the tag of an output must be a string, not 1",
        ),
        (lambda: DeclarativeKeyedProcess(INT), "needs an instance of KeyedProcess"),
        (
            lambda: DeclarativeKeyedProcess(process_of(code), side_inputs={"a": {}}),
            "'a' must be AsDict",
        ),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        make()


def test_refused_inputs() -> None:
    one = DeclarativeKeyedProcess(process_of(lambda _: nothing))
    two = DeclarativeKeyedProcess(process_of(declare_process1=code, declare_process2=code))
    p = beam.Pipeline()
    pairs = p | beam.Create([("a", 1)])
    with pytest.raises(InvalidPipelineError, match="Process processes one collection, not 2"):
        _ = (pairs, pairs) | "1" >> one
    with pytest.raises(
        InvalidPipelineError, match="Process processes a pair of collections, not 1"
    ):
        _ = pairs | "2" >> two
    with pytest.raises(InvalidPipelineError, match="it needs pairs of key and value"):
        _ = p | "numbers" >> beam.Create([1]) | "3" >> one
    windows = pairs | beam.WindowInto(beam.window.FixedWindows(5))
    with pytest.raises(InvalidPipelineError, match="have different windows"):
        _ = (pairs, windows) | "4" >> two
    with pytest.raises(TypeError, match="needs a collection or a pair of these"):
        _ = p | "6" >> one
    others = p | "others" >> beam.Create([(1, 1)])
    with pytest.raises(InvalidPipelineError, match="keys of different types"):
        _ = (pairs, others) | "5" >> two


@pytest.mark.parametrize(
    ("tags", "main", "problem"),
    [
        (("late",), "late", "the main output must not have the tag 'late'"),
        (("late", "late"), None, "two outputs have the same tag: 'late', 'late'"),
        (("None",), None, "an output must not have the tag 'None'"),
        ((), "None", "an output must not have the tag 'None'"),
        (("",), None, "an output must not have the tag ''"),
    ],
)
def test_refused_tags(tags: tuple[str, ...], main: str | None, problem: str) -> None:
    step = DeclarativeKeyedProcess(process_of(lambda _: nothing))
    with pytest.raises(ValueError, match=problem):
        step.with_outputs(*tags, main=main)
