"""Facts of a WindowingStrategy that decide how elements are grouped."""

import hashlib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from apache_beam.portability.api import beam_runner_api_pb2, standard_window_fns_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms import core
from apache_beam.transforms.window import WindowFn

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.core.ids import CoderId, EnvironmentId
from beam_spark_runner.graph.model import TimestampCombiner, Windowing
from beam_spark_runner.portable.environment_facts import is_of_python, may_be_stock
from beam_spark_runner.portable.payloads import parse
from beam_spark_runner.semantics.strategy import Strategy

_TIMESTAMP_COMBINERS = {
    beam_runner_api_pb2.OutputTime.END_OF_WINDOW: TimestampCombiner.END_OF_WINDOW,
    beam_runner_api_pb2.OutputTime.EARLIEST_IN_PANE: TimestampCombiner.EARLIEST,
    beam_runner_api_pb2.OutputTime.LATEST_IN_PANE: TimestampCombiner.LATEST,
}


def windowing_from_proto(
    id_: str,
    proto: beam_runner_api_pb2.WindowingStrategy,
    environments: Mapping[str, beam_runner_api_pb2.Environment],
) -> Windowing:
    """Read the facts. What only triggers need (such as lateness) stays in ``coded``.

    A strategy whose windows are merged already (the output of a GroupByKey, in Java)
    does not merge: its windows are grouped as they are.

    Args:
        id_: The strategy's name in the pipeline's proto, for errors.
        proto: The windowing strategy.
        environments: The environments of the pipeline.

    Raises:
        InvalidPipelineError: The payload of its WindowFn cannot be decoded, or windows have no
            length.

    Source: proto WindowingStrategy.
    """
    strategy = beam_runner_api_pb2.WindowingStrategy()
    strategy.CopyFrom(proto)
    if not fires_empty_when_closed(proto, environments):
        strategy.closing_behavior = beam_runner_api_pb2.ClosingBehavior.EMIT_IF_NONEMPTY
    return Windowing(
        coded=strategy.SerializeToString(deterministic=True),
        window_fn_urn=proto.window_fn.urn,
        window_coder=CoderId(proto.window_coder_id),
        window_fn_parameters=_window_fn_parameters(
            proto.window_fn, f"the windowing strategy {id_}"
        ),
        merges=_merges(proto),
        trigger_is_default=trigger_is_default(proto.trigger),
        panes_add_up=panes_add_up(proto),
        trigger=trigger_text(proto.trigger),
        accumulates=_accumulates(proto),
        timestamp_combiner=_TIMESTAMP_COMBINERS.get(
            proto.output_time, TimestampCombiner.END_OF_WINDOW
        ),
        environment=None
        if proto.window_fn.urn in urns.WINDOW_FNS or not proto.environment_id
        # A missing one is reported with a step that needs it, see ``placing``.
        else EnvironmentId(proto.environment_id),
    )


def fires_empty_when_closed(
    strategy: beam_runner_api_pb2.WindowingStrategy,
    environments: Mapping[str, beam_runner_api_pb2.Environment],
) -> bool:
    """Whether a window whose panes have had all its values ends with an empty pane.

    Python's SDK writes EMIT_ALWAYS into each strategy, and its trigger code knows no such pane.

    Args:
        strategy: The windowing strategy.
        environments: The environments of the pipeline.

    Source: Java ``ReduceFnRunner.needToEmit``.
    """
    if strategy.closing_behavior != beam_runner_api_pb2.ClosingBehavior.EMIT_ALWAYS:
        return False
    id_ = strategy.environment_id  # a protobuf map adds missing keys
    return not (id_ in environments and is_of_python(environments[id_]))


def _merges(proto: beam_runner_api_pb2.WindowingStrategy) -> bool:
    if proto.merge_status == beam_runner_api_pb2.MergeStatus.UNSPECIFIED:
        return bool(proto.window_fn.urn == urns.WINDOW_FN_SESSION)
    return bool(proto.merge_status == beam_runner_api_pb2.MergeStatus.NEEDS_MERGE)


def _window_fn_parameters(spec: beam_runner_api_pb2.FunctionSpec, where: str) -> str:
    """Describe the parameters that must be equal for windows to be mixed; not the gap of sessions.

    Source: Java ``FixedWindows.isCompatible``, ``Sessions.isCompatible`` and so on.
    """
    match spec.urn:
        case urns.WINDOW_FN_GLOBAL:
            return ""
        case urns.WINDOW_FN_SESSION:
            sessions = parse(standard_window_fns_pb2.SessionWindowsPayload, spec.payload, where)
            _check_lengths(where, gap=sessions.gap_size)
            return ""
        case urns.WINDOW_FN_FIXED:
            fixed = parse(standard_window_fns_pb2.FixedWindowsPayload, spec.payload, where)
            _check_lengths(where, size=fixed.size)
            return _durations(size=fixed.size, offset=fixed.offset)
        case urns.WINDOW_FN_SLIDING:
            sliding = parse(standard_window_fns_pb2.SlidingWindowsPayload, spec.payload, where)
            _check_lengths(where, size=sliding.size, period=sliding.period)
            return _durations(size=sliding.size, period=sliding.period, offset=sliding.offset)
    return hashlib.blake2b(spec.payload, digest_size=4).hexdigest()


def _check_lengths(where: str, **fields: Any) -> None:
    for name, field in fields.items():
        if field.ToNanoseconds() <= 0:
            raise InvalidPipelineError(f"the {name} of its windows is not above zero", where)


def _durations(**fields: Any) -> str:
    """Format durations, such as "size 5 s, period 1.5 s"; those that are zero are left out."""
    nanos = {name: field.ToNanoseconds() for name, field in fields.items()}
    return ", ".join(
        f"{name} {Decimal(value).scaleb(-9).normalize():f} s"
        for name, value in nanos.items()
        if value
    )


def decode_window_fn(coded: bytes) -> WindowFn:
    """Return Beam's object for the WindowFn of a strategy, which this Python must be able to load.

    Args:
        coded: The strategy, as in ``graph.model.Windowing.coded``.
    """
    proto = beam_runner_api_pb2.WindowingStrategy.FromString(coded)
    proto.trigger.default.SetInParent()  # Python may not have the trigger of another SDK
    return core.Windowing.from_runner_api(proto, PipelineContext()).windowfn


def decode_strategy(coded: bytes, window_fn: WindowFn | None = None) -> Strategy:
    """Return the strategy of a grouping.

    Args:
        coded: The strategy, as in ``graph.model.Windowing.coded``.
        window_fn: Takes the place of a WindowFn that this Python cannot load; None: it can.
    """
    proto = beam_runner_api_pb2.WindowingStrategy.FromString(coded)
    if window_fn is None:
        window_fn = decode_window_fn(coded)
    if_any = beam_runner_api_pb2.OnTimeBehavior.FIRE_IF_NONEMPTY
    return Strategy(
        window_fn=window_fn,
        merges=_merges(proto) and window_fn.is_merging(),
        trigger=proto.trigger,
        has_empty_panes=proto.on_time_behavior != if_any and _waits_for_the_end(proto.trigger),
        has_last_panes=fires_empty_when_closed(proto, {}),
        accumulates=proto.accumulation_mode == beam_runner_api_pb2.AccumulationMode.ACCUMULATING,
        lateness_us=int(proto.allowed_lateness) * 1_000,
        timestamp_combiner=proto.output_time or beam_runner_api_pb2.OutputTime.END_OF_WINDOW,
    )


def allowed_lateness_us(coded: bytes) -> int:
    """Return the allowed lateness of a strategy, in microseconds of event time.

    Args:
        coded: The strategy, as in ``graph.model.Windowing.coded``.
    """
    return int(beam_runner_api_pb2.WindowingStrategy.FromString(coded).allowed_lateness) * 1_000


def trigger_is_default(trigger: beam_runner_api_pb2.Trigger) -> bool:
    """Whether each window of a bounded collection yields exactly one pane, on time."""
    kind = trigger.WhichOneof("trigger")
    if kind == "after_end_of_window":
        spec = trigger.after_end_of_window
        return not (spec.HasField("early_firings") or spec.HasField("late_firings"))
    return kind is None or kind == "default"


def panes_add_up(proto: beam_runner_api_pb2.WindowingStrategy) -> bool:
    """Whether the last panes of parts of a window's values add up to the last pane of all values.

    This is so if there are no late panes, or if these accumulate: parts without late values keep
    their last panes. A late pane with late values only would replace the values of its own part,
    but not those of the other parts.

    Args:
        proto: A windowing strategy with a default trigger.
    """
    if proto.allowed_lateness == 0:
        return True
    is_closed = proto.trigger.WhichOneof("trigger") == "after_end_of_window"  # fires once
    return not is_closed and _accumulates(proto)


def _accumulates(proto: beam_runner_api_pb2.WindowingStrategy) -> bool:
    return bool(proto.accumulation_mode == beam_runner_api_pb2.AccumulationMode.ACCUMULATING)


_INDIFFERENT = (
    None,
    "default",
    "always",
    "never",
    "after_processing_time",
    "after_synchronized_processing_time",
)
"""Kinds of triggers that do not depend on the number of elements."""


def allows_lifting(trigger: beam_runner_api_pb2.Trigger) -> bool:
    """Whether a trigger fires for accumulators as it would for the elements in them.

    Source: Beam ``translations.lift_combiners``; as there, False for kinds that are not listed.
    """
    kind = trigger.WhichOneof("trigger")
    if kind == "element_count":
        return int(trigger.element_count.element_count) <= 1
    if kind in ("after_end_of_window", "after_any", "repeat"):
        return all(map(allows_lifting, _parts_of(trigger)))
    return kind in _INDIFFERENT


def may_be_lifted(
    strategy: beam_runner_api_pb2.WindowingStrategy,
    environment: beam_runner_api_pb2.Environment,
    *,
    is_bounded: bool,
    has_last_panes: bool,
) -> bool:
    """Whether accumulators of some elements may be grouped in place of the elements.

    A trigger that counts elements must not count accumulators. If elements may be late, the
    earliest timestamp of an accumulator may be before the watermark, although those of its other
    elements are not. And for an empty pane, a stock SDK would merge no accumulators at all, which
    CombineFns need not support.

    Args:
        strategy: The windowing strategy of the elements.
        environment: The environment of the CombineFn.
        is_bounded: Whether the elements are bounded.
        has_last_panes: See ``fires_empty_when_closed``.
    """
    earliest = beam_runner_api_pb2.OutputTime.EARLIEST_IN_PANE
    may_be_empty = _fires_early(strategy) or (has_last_panes and _fires_again(strategy))
    return (
        allows_lifting(strategy.trigger)
        and (is_bounded or strategy.output_time != earliest)
        and not (may_be_empty and not _accumulates(strategy) and may_be_stock(environment))
    )


def _fires_again(strategy: beam_runner_api_pb2.WindowingStrategy) -> bool:
    """Whether a pane may be followed by the last one, which then may be empty."""
    return strategy.allowed_lateness > 0 or not trigger_is_default(strategy.trigger)


def _fires_early(strategy: beam_runner_api_pb2.WindowingStrategy) -> bool:
    """Whether early panes may leave no values for the on-time pane, which then is empty."""
    trigger = strategy.trigger
    return bool(
        trigger.WhichOneof("trigger") not in (None, "default")
        and _waits_for_the_end(trigger)
        and not (
            trigger.WhichOneof("trigger") == "after_end_of_window"
            and not trigger.after_end_of_window.HasField("early_firings")
        )
    )


def trigger_text(trigger: beam_runner_api_pb2.Trigger) -> str:
    """Return a trigger's kind and parts as text, in the proto's words.

    Example:
        AfterWatermark(early=AfterCount(3))   ==>   "after_end_of_window(element_count(3))"
    """
    kind = trigger.WhichOneof("trigger")
    if kind is None:
        return "default"
    if kind == "element_count":
        return f"{kind}({trigger.element_count.element_count})"
    parts = _parts_of(trigger)
    return f"{kind}({', '.join(map(trigger_text, parts))})" if parts else kind


def _waits_for_the_end(trigger: Any) -> bool:
    """Whether a trigger fires at the end of a window, in addition to other times.

    Args:
        trigger: Trigger proto.

    Source: ``TriggerFn.has_ontime_pane`` of Beam's Python.
    """
    kind = trigger.WhichOneof("trigger")
    if kind in (None, "default", "after_end_of_window"):
        return True
    return any(map(_waits_for_the_end, _parts_of(trigger)))


def _parts_of(trigger: Any) -> list[Any]:
    """Return the direct parts of a trigger, as Trigger protos."""
    parts: list[Any] = []
    for _, part in getattr(trigger, str(trigger.WhichOneof("trigger"))).ListFields():
        if isinstance(part, type(trigger)):
            parts.append(part)
        elif isinstance(part, Iterable):
            parts.extend(subtrigger for subtrigger in part if isinstance(subtrigger, type(trigger)))
    return parts
