"""Windowing strategies of a pipeline's proto."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2 as pb
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms import core, trigger, window
from apache_beam.transforms.environments import (
    DockerEnvironment,
    EmbeddedPythonEnvironment,
    ProcessEnvironment,
    python_sdk_capabilities,
)

from beam_spark_runner.core import urns
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.windowing import (
    allows_lifting,
    decode_strategy,
    may_be_lifted,
    panes_add_up,
    trigger_is_default,
    trigger_text,
    windowing_from_proto,
)
from tests.unit.portable.graphs import of, transform_named
from tests.unit.portable.pipelines import proto_of

_ALWAYS = trigger.AfterCount(1)
JAVA = DockerEnvironment(
    "java", capabilities=("beam:version:sdk_base:apache/beam_java17_sdk:2.65.0",)
)
PYTHON = DockerEnvironment("python", capabilities=python_sdk_capabilities())


class Exotic(window.NonMergingWindowFn):  # type: ignore[misc]
    def assign(self, context: Any) -> list[window.GlobalWindow]:
        return [window.GlobalWindow()]

    def get_window_coder(self) -> Any:
        return window.GlobalWindows().get_window_coder()


@pytest.mark.parametrize(
    ("window_fn", "urn", "merges"),
    [
        (window.FixedWindows(3), urns.WINDOW_FN_FIXED, False),
        (window.SlidingWindows(4, 2), urns.WINDOW_FN_SLIDING, False),
        (window.Sessions(3), urns.WINDOW_FN_SESSION, True),
        (window.GlobalWindows(), urns.WINDOW_FN_GLOBAL, False),
        (Exotic(), "beam:window_fn:pickled_python:v1", False),
    ],
)
def test_window_fns(window_fn: Any, urn: str, merges: bool) -> None:
    graph = from_proto(proto_of(lambda p: p | of(1) | "w" >> beam.WindowInto(window_fn)))
    (output,) = transform_named(graph, "w").outputs.values()
    windowing = graph.windowings[graph.pcollections[output].windowing]
    assert (windowing.window_fn_urn, windowing.merges) == (urn, merges)
    assert windowing.window_coder in graph.coders


@pytest.mark.parametrize(
    ("output_time", "combiner"),
    [
        (pb.OutputTime.END_OF_WINDOW, TimestampCombiner.END_OF_WINDOW),
        (pb.OutputTime.EARLIEST_IN_PANE, TimestampCombiner.EARLIEST),
        (pb.OutputTime.LATEST_IN_PANE, TimestampCombiner.LATEST),
    ],
)
def test_timestamp_combiners(output_time: Any, combiner: TimestampCombiner) -> None:
    graph = from_proto(
        proto_of(
            lambda p: (
                p
                | of(1)
                | "w" >> beam.WindowInto(window.FixedWindows(3), timestamp_combiner=output_time)
            )
        )
    )
    (output,) = transform_named(graph, "w").outputs.values()
    found = graph.windowings[graph.pcollections[output].windowing]
    assert found.timestamp_combiner is combiner


@pytest.mark.parametrize(
    ("made_of", "is_default", "text"),
    [
        (trigger.DefaultTrigger(), True, "default"),
        (trigger.AfterWatermark(), True, "after_end_of_window"),
        (
            trigger.AfterWatermark(early=trigger.AfterCount(3)),
            False,
            "after_end_of_window(element_count(3))",
        ),
        (
            trigger.Repeatedly(trigger.AfterAny(trigger.AfterCount(2), trigger.AfterWatermark())),
            False,
            "repeat(after_any(element_count(2), after_end_of_window))",
        ),
        (trigger.AfterProcessingTime(3), False, "after_processing_time"),
    ],
)
def test_triggers(made_of: Any, is_default: bool, text: str) -> None:
    proto = made_of.to_runner_api(None)
    assert trigger_is_default(proto) is is_default
    assert trigger_text(proto) == text


@pytest.mark.parametrize(
    ("made_of", "lateness_s", "accumulates", "add_up"),
    [
        pytest.param(trigger.DefaultTrigger(), 0, False, True, id="nothing comes late"),
        pytest.param(trigger.AfterWatermark(), 0, False, True, id="the same, in other words"),
        pytest.param(trigger.DefaultTrigger(), 9, False, False, id="a late pane is late only"),
        pytest.param(trigger.DefaultTrigger(), 9, True, True, id="a late pane is everything"),
        pytest.param(trigger.AfterWatermark(), 9, True, False, id="no late pane: it is closed"),
    ],
)
def test_panes_of_parts_add_up(
    made_of: Any, lateness_s: int, accumulates: bool, add_up: bool
) -> None:
    modes = trigger.AccumulationMode
    windowing = core.Windowing(
        window.FixedWindows(10),
        made_of,
        modes.ACCUMULATING if accumulates else modes.DISCARDING,
        allowed_lateness=lateness_s,
    )
    proto = windowing.to_runner_api(PipelineContext())
    assert panes_add_up(proto) is add_up
    assert windowing_from_proto("w", proto, {}).accumulates is accumulates


@pytest.mark.parametrize(
    ("made_of", "is_allowed"),
    [
        (trigger.DefaultTrigger(), True),
        (trigger.AfterCount(1), True),
        (trigger.AfterCount(2), False),
        (trigger.AfterWatermark(early=trigger.AfterProcessingTime(3)), True),
        (trigger.AfterWatermark(early=trigger.AfterCount(3)), False),
        (trigger.AfterWatermark(late=trigger.Repeatedly(trigger.AfterCount(2))), False),
        (trigger.AfterAny(trigger.AfterProcessingTime(3), trigger.AfterCount(1)), True),
        (trigger.AfterAny(trigger.AfterProcessingTime(3), trigger.AfterCount(9)), False),
        (trigger.AfterEach(trigger.AfterCount(1), trigger.AfterCount(1)), False),
        (trigger.AfterAll(trigger.AfterCount(1), trigger.AfterProcessingTime(3)), False),
    ],
)
def test_triggers_under_which_combiners_are_lifted(made_of: Any, is_allowed: bool) -> None:
    assert allows_lifting(made_of.to_runner_api(None)) is is_allowed


@pytest.mark.parametrize(
    ("environment", "made_of", "accumulates", "is_lifted"),
    [
        (EmbeddedPythonEnvironment(), trigger.AfterWatermark(early=_ALWAYS), False, True),
        (ProcessEnvironment(""), trigger.AfterWatermark(early=_ALWAYS), False, True),
        (ProcessEnvironment("boot"), trigger.AfterWatermark(early=_ALWAYS), False, False),
        (DockerEnvironment("go"), trigger.AfterWatermark(early=_ALWAYS), False, False),
        (DockerEnvironment("go"), trigger.AfterWatermark(early=_ALWAYS), True, True),
        (DockerEnvironment("go"), trigger.AfterWatermark(late=_ALWAYS), False, True),
        (DockerEnvironment("go"), trigger.DefaultTrigger(), False, True),
        (DockerEnvironment("go"), trigger.Repeatedly(_ALWAYS), False, True),
        (
            DockerEnvironment("go"),
            trigger.Repeatedly(trigger.AfterAny(_ALWAYS, trigger.AfterWatermark())),
            False,
            False,
        ),
    ],
)
def test_stock_harnesses_are_not_to_merge_nothing(
    environment: Any, made_of: Any, accumulates: bool, is_lifted: bool
) -> None:
    """A pane on time may be empty where earlier ones have given out everything."""
    modes = trigger.AccumulationMode
    mode = modes.ACCUMULATING if accumulates else modes.DISCARDING
    windowing = core.Windowing(window.FixedWindows(10), made_of, mode)
    proto = windowing.to_runner_api(PipelineContext())
    environment = environment.to_runner_api(None)
    lifted = may_be_lifted(proto, environment, is_bounded=False, has_last_panes=False)
    assert lifted is is_lifted


@pytest.mark.parametrize(
    ("made_of", "lateness_s", "accumulates", "is_lifted"),
    [
        pytest.param(trigger.DefaultTrigger(), 0, False, True, id="one pane"),
        pytest.param(trigger.DefaultTrigger(), 9, False, False, id="nothing comes late"),
        pytest.param(trigger.Repeatedly(_ALWAYS), 0, False, False, id="all was given out"),
        pytest.param(trigger.Repeatedly(_ALWAYS), 0, True, True, id="all comes again"),
    ],
)
def test_stock_harnesses_are_not_to_merge_nothing_for_the_last_pane(
    made_of: Any, lateness_s: int, accumulates: bool, is_lifted: bool
) -> None:
    modes = trigger.AccumulationMode
    mode = modes.ACCUMULATING if accumulates else modes.DISCARDING
    windowing = core.Windowing(window.FixedWindows(10), made_of, mode, allowed_lateness=lateness_s)
    proto = windowing.to_runner_api(PipelineContext())
    for environment, expected in (
        (DockerEnvironment("java"), is_lifted),
        (ProcessEnvironment(""), True),
    ):
        made_by = environment.to_runner_api(None)
        assert expected is may_be_lifted(proto, made_by, is_bounded=True, has_last_panes=True)


@pytest.mark.parametrize(
    ("environment", "behavior", "is_empty"),
    [
        pytest.param(JAVA, pb.ClosingBehavior.EMIT_ALWAYS, True, id="Java, always"),
        pytest.param(JAVA, pb.ClosingBehavior.EMIT_IF_NONEMPTY, False, id="Java, if any"),
        pytest.param(PYTHON, pb.ClosingBehavior.EMIT_ALWAYS, False, id="Python"),
        pytest.param(
            EmbeddedPythonEnvironment(), pb.ClosingBehavior.EMIT_ALWAYS, False, id="embedded"
        ),
    ],
)
def test_last_panes_are_as_the_sdk_of_the_strategy_means_it(
    environment: Any, behavior: Any, is_empty: bool
) -> None:
    """Python's SDK writes EMIT_ALWAYS into every strategy, and knows no such pane."""
    proto = core.Windowing(window.FixedWindows(10)).to_runner_api(PipelineContext())
    proto.environment_id, proto.closing_behavior = "e", behavior
    made_by = {"e": environment.to_runner_api(None)}
    windowing = windowing_from_proto("w", proto, made_by)
    assert decode_strategy(windowing.coded).has_last_panes is is_empty
