"""What a process may declare, and what is refused when the pipeline is built."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.pvalue import AsList
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.core.urns import DECLARATIVE_KEYED_PROCESS, DECLARED
from beam_spark_runner.transforms import (
    DeclarationContext,
    DeclarationError,
    DeclarativeKeyedProcess,
    EventTimer,
    KeyedProcess,
    ProcessingTimer,
)
from tests.unit.transforms.declarative.running import nothing, process_of

INT = VarIntCoder()


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


def declares_with(was: Any) -> Callable[[Any], Any]:
    return lambda ctx: ctx.declare("a", nothing, was=was)


def names(name: Any, declare: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda ctx: declare(ctx, name)


WRONG_NAMES = {1: "be a string, not 1", None: "be a string, not None", "": "not be empty"}
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
    **{
        f"was as {type(was).__name__}": (
            declares_with(was),
            "was= needs a tuple of names, not",
        )
        for was in ("old", 5, None, (1,), {"old": 1})
    },
    "an empty earlier name": (
        lambda ctx: ctx.declare("a", nothing, was=("",)),
        r"was= has a name that is empty or given twice: \(''",
    ),
    "an earlier name twice in one": (
        lambda ctx: ctx.declare("a", nothing, was=("old", "old")),
        "was= has a name that is empty or given twice",
    ),
    "an earlier name that is the present one": (
        lambda ctx: ctx.declare("a", nothing, was=("a",)),
        "the callback 'a' has the same name as in earlier versions",
    ),
    "earlier names of a stage, as a string": (
        lambda ctx: ctx.with_record().then_accept(nothing).with_name("a", was="old"),
        "was= needs a tuple of names",
    ),
    "an earlier name that is automatic": (
        lambda ctx: [ctx.declare("a", nothing, was=("callback 1",)), ctx.declare(nothing)],
        "the name 'callback 1' belongs to the callbacks 'a' and 'callback 1'",
    ),
    **{
        f"the name {name!r} of {what}": (names(name, declare), f"the name of {what} must {problem}")
        for what, declare in {
            "a variable": lambda ctx, name: ctx.declare_variable(INT, name, int),
            "a callback": lambda ctx, name: ctx.declare(name, nothing),
        }.items()
        for name, problem in WRONG_NAMES.items()
    },
    **{
        f"the name {name!r} in a chain": (
            names(name, lambda ctx, name: ctx.with_record().then_accept(nothing).with_name(name)),
            f"the name of a callback must {problem}",
        )
        for name, problem in WRONG_NAMES.items()
    },
    "an automatic name": (
        lambda ctx: [ctx.declare(nothing), ctx.declare("callback 1", nothing)],
        "the name 'callback 1' must not be given to a callback",
    ),
    "an automatic name, first": (
        lambda ctx: [ctx.declare("callback 1", nothing), ctx.declare(nothing)],
        "the name 'callback 1' must not be given to a callback",
    ),
    "an automatic name of a stage": (
        lambda ctx: ctx.with_record().then_accept(nothing).with_name("callback 12/true"),
        "the name 'callback 12/true' must not be given",
    ),
    "a callback declared again": (
        lambda ctx: ctx.declare("b", ctx.declare("a", nothing)),
        "the callback 'b' is declared already, as 'a'",
    ),
    "a callback without a parameter": (
        lambda ctx: ctx.declare("a", lambda: 1),
        r"the callback 'a' must take one argument or two arguments, not \(\)",
    ),
    "a callback with many parameters": (
        lambda ctx: ctx.declare("a", lambda a, b, c: 1),
        r"the callback 'a' must take one argument or two arguments, not \(a, b, c\)",
    ),
    "a stage with two parameters": (
        lambda ctx: ctx.with_record().then_apply(lambda a, b: 1),
        r"a callback of .then_apply must take one argument, not \(a, b\)",
    ),
    "a declared callback of two values as a stage": (
        lambda ctx: ctx.with_record().then_apply(ctx.declare("a", lambda a, b: 1)),
        r"a callback of .then_apply must take one argument, not \(a, b\): <callback 'a'>",
    ),
    "a condition without a parameter": (
        lambda ctx: ctx.with_record().then_conditionally_apply(lambda: True, nothing),
        "a callback of .then_conditionally_apply must take one argument",
    ),
    "a branch without a parameter": (
        lambda ctx: ctx.with_record().then_conditionally_apply(bool, nothing, lambda: 1),
        "a callback of .then_conditionally_apply must take one argument",
    ),
    "a chain that begins without a parameter": (
        lambda ctx: ctx.declare_chain(lambda: 1),
        "the first code of a chain must take one argument",
    ),
    "an initial value of a parameter": (
        lambda ctx: ctx.declare_variable(INT, "v", lambda _: 0),
        "the initial value of the variable 'v' must take no argument",
    ),
    "code without a parameter": (
        lambda _: lambda: 1,
        "that declare_process of Process returns must take one argument",
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
        "a callback of .then_apply must be a function, not None",
    ),
    "a branch without a function": (
        lambda ctx: ctx.with_record().then_conditionally_apply(bool, None),
        "a callback of .then_conditionally_apply must be a function, not None",
    ),
    "a chain without a function": (
        lambda ctx: ctx.declare_chain("a"),
        "the first code of a chain must be a function, not 'a'",
    ),
    "no code": (lambda _: None, "declare_process of Process must return a function, not None"),
}


@pytest.mark.parametrize(("declare", "problem"), WRONG.values(), ids=WRONG)
def test_refused_declarations(declare: Callable[[Any], Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem) as raised:
        DeclarativeKeyedProcess(process_of(declare))
    assert isinstance(raised.value, ValueError)


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

    declared = process_of(declare_process=declare).declare_all()
    assert {each.name for each in declared.callbacks.values()} == {
        *("callback 1", "one"),
        *("callback 2", "two", "two/true", "two/false", "three", "three/true", "four"),
    }


def test_a_stage_may_have_declared_and_other_callbacks() -> None:
    def declare(_: KeyedProcess, ctx: DeclarationContext) -> Any:
        return (
            ctx.with_record()
            .then_conditionally_apply(ctx.declare("holds", bool), nothing, nothing)
            .with_name("one", was=("eins",))
            .then_conditionally_apply(bool, ctx.declare("yes", nothing), nothing)
            .with_name("two")
            .then_conditionally_apply(ctx.declare("it", bool), nothing)
            .finish()
        )

    declared = process_of(declare_process=declare).declare_all()
    assert {each.name for each in declared.callbacks.values()} == {
        *("holds", "one/true", "one/false", "yes", "two", "two/false", "it", "callback 1"),
    }


def test_a_stage_whose_callbacks_are_all_declared_has_its_names() -> None:
    def declare(_: KeyedProcess, ctx: DeclarationContext) -> Any:
        one, two = ctx.declare("one", bool), ctx.declare("two", nothing)
        return ctx.with_record().then_conditionally_apply(one, two).with_name("three").finish()

    with pytest.raises(DeclarationError, match="named twice: 'three' is the second"):
        DeclarativeKeyedProcess(process_of(declare_process=declare))


def test_names_are_those_of_all_methods() -> None:
    def declare(_: KeyedProcess, ctx: DeclarationContext) -> Any:
        return ctx.declare("same", nothing)

    with pytest.raises(DeclarationError, match="the callback 'same' is declared twice"):
        DeclarativeKeyedProcess(
            process_of(
                declare_process=declare,
                declare_on_processing_time=declare,
                poll=ProcessingTimer("poll"),
            )
        )


def test_the_proto_has_the_names() -> None:
    p = beam.Pipeline()
    step = DeclarativeKeyedProcess(process_of(lambda ctx: ctx.declare("only", nothing)))
    _ = p | beam.Create([("a", 1)]) | step
    found = [
        transform.annotations[DECLARED]
        for transform in p.to_runner_api().components.transforms.values()
        if DECLARED in transform.annotations
    ]
    assert found == [b"[\"the callback 'only'\"]"]


def test_timers_have_the_coders_of_the_main_input() -> None:
    """Whatever the order of inputs is: one of eight side inputs would nearly always be taken."""
    p = beam.Pipeline()
    sides = {
        f"side {number}": AsList(p | f"Side {number}" >> beam.Create([number]))
        for number in range(8)
    }
    made = process_of(
        lambda _: nothing, declare_on_event_time=lambda *_: nothing, end=EventTimer("end")
    )
    windows = p | beam.Create([("a", 1)]) | beam.WindowInto(FixedWindows(5))
    _ = windows | DeclarativeKeyedProcess(made, side_inputs=sides)
    components = p.to_runner_api().components
    coders = components.coders
    found = []
    for transform in components.transforms.values():
        if transform.spec.urn in (DECLARATIVE_KEYED_PROCESS, common_urns.primitives.PAR_DO.urn):
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            for family in payload.timer_family_specs.values():
                timer = coders[family.timer_family_coder_id]
                found.append([coders[id_].spec.urn for id_ in timer.component_coder_ids])
    assert found == [["beam:coder:string_utf8:v1", "beam:coder:interval_window:v1"]] * 2
