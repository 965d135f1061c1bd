"""What a process may declare, and what is refused when the pipeline is built."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import PickleCoder, VarIntCoder

from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.transforms import (
    DeclarationContext,
    DeclarationError,
    DeclarativeKeyedProcess,
    EventTimer,
    KeyedProcess,
    MapState,
    ProcessingTimer,
    SetState,
    ValueState,
)
from beam_spark_runner.transforms.declarative.keyed_steps import CALLBACKS

INT = VarIntCoder()


def nothing(*_: Any) -> None: ...


def unfinished(ctx: Any) -> Any:
    ctx.with_record().then_accept(nothing).with_name("left")
    return nothing


def continued_twice(ctx: Any) -> Any:
    stage = ctx.with_record()
    stage.then_accept(nothing).finish()
    return stage.then_apply(nothing).finish()


def finished_and_continued(ctx: Any) -> Any:
    stage = ctx.with_record().then_accept(nothing)
    stage.finish()
    return stage.then_apply(nothing).finish()


def chain_as_branch(ctx: Any) -> Any:
    branch = ctx.with_record().then_apply(nothing)
    return ctx.with_record().then_conditionally_apply(bool, branch).finish()


def named_late(ctx: Any) -> Any:
    stage = ctx.with_record().then_accept(nothing)
    stage.then_accept(nothing).finish()
    stage.with_name("late")
    return nothing


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a name twice": (
        lambda ctx: [ctx.declare("a", nothing), ctx.declare("a", nothing)],
        "the callback 'a' is declared twice",
    ),
    "an earlier name that is taken": (
        lambda ctx: [ctx.declare("a", nothing), ctx.declare("b", nothing, was=("a",))],
        "the name 'a' belongs to the callbacks 'a' and 'b'",
    ),
    "an earlier name twice": (
        lambda ctx: [ctx.declare(name, nothing, was=("old",)) for name in "ab"],
        "the name 'old' belongs to the callbacks 'a' and 'b'",
    ),
    "a name that was another's": (
        lambda ctx: [ctx.declare("a", nothing, was=("b",)), ctx.declare("b", nothing)],
        "the name 'b' belongs to the callbacks 'a' and 'b'",
    ),
    "was as a string": (
        lambda ctx: ctx.declare("a", nothing, was="old"),
        "was= needs a tuple of names",
    ),
    "a callback without a function": (lambda ctx: ctx.declare("a"), "'a' has no function"),
    "a callback that is none": (lambda ctx: ctx.declare("a", 1), "'a' must be a function, not 1"),
    "a name that is none": (lambda ctx: ctx.declare(1, nothing), "must be a string, not 1"),
    "a variable twice": (
        lambda ctx: [ctx.declare_variable(INT, "v", int) for _ in range(2)],
        "the variable 'v' is declared twice",
    ),
    "a variable without a coder": (
        lambda ctx: ctx.declare_variable(int, "v", int),
        "the variable 'v' needs a coder",
    ),
    "a variable with a value": (
        lambda ctx: ctx.declare_variable(INT, "v", 0),
        "the initial value of the variable 'v' must be a function, not 0",
    ),
    "an unfinished chain": (unfinished, "the chain that ends with 'left' is not finished"),
    "a chain that only begins": (
        lambda ctx: ctx.with_record() and nothing,
        "the chain that ends with its first code is not finished",
    ),
    "a chain that is returned": (
        lambda ctx: ctx.with_record().then_accept(nothing),
        "must return a function",
    ),
    "a stage continued twice": (continued_twice, "continued twice: its first code"),
    "a chain continued after its end": (finished_and_continued, "continued twice: 'callback 1'"),
    "an unfinished chain as a branch": (chain_as_branch, "a chain must be finished before"),
    "a stage named twice": (
        lambda ctx: ctx.with_record().then_accept(nothing).with_name("a").with_name("b"),
        "named twice: 'b' is the second",
    ),
    "a declared callback named again": (
        lambda ctx: ctx.with_record().then_accept(ctx.declare("a", nothing)).with_name("b"),
        "named twice: 'b' is the second",
    ),
    "a first stage with a name": (
        lambda ctx: ctx.with_record().with_name("a"),
        "the first code of a chain has no name",
    ),
    "a stage named late": (named_late, "'late' names a stage of a chain that is continued already"),
    "a stage with a name that is taken": (
        lambda ctx: [
            ctx.declare("a/false", nothing),
            ctx.with_record().then_conditionally_apply(bool, nothing, nothing).with_name("a"),
        ],
        "'a/false' is declared twice",
    ),
    "a stage without a function": (
        lambda ctx: ctx.with_record().then_apply(None),
        ".then_apply needs functions, not None",
    ),
    "a branch without a function": (
        lambda ctx: ctx.with_record().then_conditionally_apply(bool, None),
        ".then_conditionally_apply needs functions, not None",
    ),
    "a chain without a function": (
        lambda ctx: ctx.declare_chain("a"),
        "a chain begins with a function, not 'a'",
    ),
    "no code": (lambda _: None, "declare_process of Process must return a function, not None"),
}


def process(declare: Callable[[Any], Any] | None = None, **more: Any) -> Any:
    if declare is not None:
        more["declare_process"] = lambda _, ctx: declare(ctx)
    made = type("Process", (KeyedProcess,), more)()
    return made


@pytest.mark.parametrize(("declare", "problem"), WRONG.values(), ids=WRONG)
def test_refused_declarations(declare: Callable[[Any], Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem) as raised:
        DeclarativeKeyedProcess(process(declare))
    assert isinstance(raised.value, ValueError)


def code(*_: Any) -> Any:
    return nothing


METHODS: dict[str, tuple[dict[str, Any], str]] = {
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
    "a reserved name": (
        {"declare_process": code, "a": ValueState("on_window_expiration", INT)},
        "the name 'on_window_expiration'",
    ),
}


@pytest.mark.parametrize(("attributes", "problem"), METHODS.values(), ids=METHODS)
def test_refused_methods(attributes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        DeclarativeKeyedProcess(process(**attributes))


def test_states_belong_to_the_class() -> None:
    made = process(lambda _: nothing)
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
        (lambda: EventTimer(""), "EventTimer needs a name"),
        (lambda: DeclarativeKeyedProcess(INT), "needs an instance of KeyedProcess"),
        (
            lambda: DeclarativeKeyedProcess(process(code), side_inputs={"a": {}}),
            "'a' must be AsDict",
        ),
    ],
)
def test_wrong_arguments(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        make()


def test_names_of_callbacks() -> None:
    def declare(_: KeyedProcess, ctx: DeclarationContext) -> Any:
        ctx.declare(nothing)
        ctx.declare("one", nothing, was=("eins", "un"))
        return (
            ctx.with_record()
            .then_apply(nothing)
            .then_conditionally_compose(bool, ctx.completed, ctx.completed)
            .with_name("two", was=("zwei",))
            .then_conditionally_apply(bool, nothing)
            .with_name("three")
            .then_accept(ctx.declare("four", nothing))
            .finish()
        )

    declared = process(declare_process=declare).declare_all()
    assert declared.context.names == [
        *("callback 1", "one"),
        *("callback 2", "two", "two/true", "two/false", "three", "three/true", "four"),
    ]


def test_names_are_those_of_all_methods() -> None:
    def declare(_: KeyedProcess, ctx: DeclarationContext) -> Any:
        return ctx.declare("same", nothing)

    with pytest.raises(DeclarationError, match="the callback 'same' is declared twice"):
        DeclarativeKeyedProcess(
            process(
                declare_process=declare,
                declare_on_processing_time=declare,
                poll=ProcessingTimer("poll"),
            )
        )


def test_refused_inputs() -> None:
    one = DeclarativeKeyedProcess(process(lambda _: nothing))
    two = DeclarativeKeyedProcess(process(declare_process1=code, declare_process2=code))
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
    with pytest.raises(ValueError, match="must not have the tag 'late'"):
        one.with_outputs("late", main="late")


def test_the_proto_has_the_names() -> None:
    p = beam.Pipeline()
    step = DeclarativeKeyedProcess(process(lambda ctx: ctx.declare("only", nothing)))
    _ = p | beam.Create([("a", 1)]) | step
    found = [
        transform.annotations[CALLBACKS]
        for transform in p.to_runner_api().components.transforms.values()
        if CALLBACKS in transform.annotations
    ]
    assert found == [b'["only"]']
