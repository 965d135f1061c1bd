"""What tests remember of Beam's answers is what Beam answers."""

import functools
import gc
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate
from apache_beam.transforms.timeutil import TimeDomain

from beam_spark_runner.options.declared import SparkPortableRunnerOptions
from tests import beam_once

STATE = userstate.ReadModifyWriteStateSpec("state", VarIntCoder())
TIMER = userstate.TimerSpec("timer", TimeDomain.WATERMARK)


class Stateful(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Any, state: Any = beam.DoFn.StateParam(STATE)) -> None:
        """Has a state."""

    @userstate.on_timer(TIMER)  # type: ignore[untyped-decorator]
    def fire(self, timer: Any = beam.DoFn.TimerParam(TIMER)) -> None:
        """Has a timer."""

    def add(self, element: Any, times: int = 2) -> Any:
        """Is no method of Beam's."""


class Plain(beam.DoFn):  # type: ignore[misc]
    def __init__(self, process: Callable[..., Any] | None = None) -> None:
        if process is not None:
            self.process = process  # type: ignore[method-assign]

    def process(self, element: Any) -> None:
        """Has no state."""


def keyed(element: Any, state: Any = beam.DoFn.StateParam(STATE)) -> Any:
    return element


def same(element: Any, *, other: int = 1) -> Any:
    return element


@functools.wraps(keyed)
def wrapped(*arguments: Any) -> Any:
    return keyed(*arguments)


FLAGS: tuple[list[str], ...] = (
    [],
    ["--streaming", "--experiments=a", "--experiments=b", "--unknown=1", "--job_name=job"],
)


KINDS = [
    kind
    for kind in PipelineOptions.__subclasses__()
    if kind.__module__.startswith(("apache_beam.options.", "beam_spark_runner."))
]


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_views(kind: Any, flags: list[str]) -> None:
    for _ in range(2):
        expected = beam_once._made_view(PipelineOptions(flags, job_name="given"), kind)
        found = beam_once._view_as(PipelineOptions(flags, job_name="given"), kind)
        assert type(found) is type(expected)
        assert found._visible_option_list() == expected._visible_option_list()
        assert found._all_options == expected._all_options


def test_a_view_depends_on_the_options_that_a_program_declares() -> None:
    def visible() -> list[str]:
        options = PipelineOptions(["--unknown=2"])
        names: list[str] = beam_once._view_as(
            options, SparkPortableRunnerOptions
        )._visible_option_list()
        return names

    assert "savepoint_every" in visible()

    class Own(PipelineOptions):  # type: ignore[misc]
        @classmethod
        def _add_argparse_args(cls, parser: Any) -> None:
            parser.add_argument("--savepoint_every")

    assert "savepoint_every" not in visible()
    del Own
    gc.collect()
    assert "savepoint_every" in visible()


def test_views_share_what_is_set_with_their_options_only() -> None:
    for _ in range(2):
        options = PipelineOptions(["--experiments=a"])
        view = beam_once._view_as(options, beam.options.pipeline_options.DebugOptions)
        assert view.experiments == ["a"]
        view.experiments.append("b")
        again = beam_once._view_as(view, beam.options.pipeline_options.DebugOptions)
        assert again.experiments == ["a", "b"]


@pytest.mark.parametrize(
    "function",
    [
        keyed,
        same,
        wrapped,
        functools.partial(keyed, 1),
        lambda element, unhashable=[]: element,
        Stateful.process,
        Stateful().process,
        Stateful().add,
        str.strip,
        len,
    ],
)
def test_arguments(function: Any) -> None:
    for _ in range(2):
        assert beam_once._arguments_of(function) == beam_once._asked_arguments(function)


def test_arguments_of_a_function_whose_defaults_are_set() -> None:
    def changed(element: Any, by: int = 1) -> Any:
        return element

    assert beam_once._arguments_of(changed) == (["element", "by"], [1])
    changed.__defaults__ = (2,)
    assert beam_once._arguments_of(changed) == (["element", "by"], [2])


@pytest.mark.parametrize(
    "dofn",
    [
        Stateful(),
        Plain(),
        Plain(Stateful().process),
        Plain(keyed),
        core.CallableWrapperDoFn(keyed),
        core.CallableWrapperDoFn(same),
        core.CallableWrapperDoFn(Stateful().process),
        core.CallableWrapperDoFn(str.strip),
    ],
)
def test_states_and_timers(dofn: Any) -> None:
    for _ in range(2):
        assert beam_once._specs_of(dofn) == beam_once._asked_specs(dofn)


def test_two_states_of_one_name_are_still_refused() -> None:
    class Twice(beam.DoFn):  # type: ignore[misc]
        def process(
            self,
            element: Any,
            one: Any = beam.DoFn.StateParam(STATE),
            other: Any = beam.DoFn.StateParam(STATE),
        ) -> None:
            """Has the same state twice."""

    for _ in range(2):
        with pytest.raises(ValueError, match="duplicate"):
            beam_once._specs_of(Twice())
