"""Converts Trigger protos to state machines."""

from collections.abc import Sequence
from typing import Any

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics import trigger_machines as machines
from beam_spark_runner.semantics.trigger_machines import Trigger


def trigger_of(proto: Any) -> Trigger:
    """Return the state machine of a trigger.

    Args:
        proto: The Trigger proto.

    Raises:
        ValueError: The trigger is of a kind that Beam's model does not have.
    """
    return _node(proto, 0)


def _node(proto: Any, number: int) -> Trigger:
    """Return the node of a proto; its number is ``number``, and its descendants' follow."""

    def below(*protos: Any) -> tuple[range, list[Trigger]]:
        parts: list[Trigger] = []
        end = number + 1
        for subtrigger in protos:
            part = _node(subtrigger, end)
            parts.append(part)
            end = part.numbers.stop
        return range(number, end), parts

    alone = range(number, number + 1)
    kind = proto.WhichOneof("trigger")
    match kind:
        case "default":
            return machines.Default(alone)
        case "always":
            return machines.Always(alone)
        case "never":
            return machines.Never(alone)
        case "element_count":
            return machines.ElementCount(alone, proto.element_count.element_count)
        case "after_processing_time":
            moves = tuple(proto.after_processing_time.timestamp_transforms)
            return machines.AfterProcessingTime(alone, lambda clock_us: _moved(clock_us, moves))
        case "after_synchronized_processing_time":
            # Upstream has the same clock, so that it is synchronized at once.
            return machines.AfterProcessingTime(alone, lambda clock_us: clock_us)
        case "after_end_of_window":
            spec = proto.after_end_of_window
            has_late = spec.HasField("late_firings")
            early = spec.early_firings if spec.HasField("early_firings") else _never(proto)
            numbers, parts = below(early, *([spec.late_firings] if has_late else []))
            return machines.AfterEndOfWindow(numbers, parts, has_late=has_late)
        case "after_all":
            return machines.Parallel(*below(*proto.after_all.subtriggers), all)
        case "after_any":
            return machines.Parallel(*below(*proto.after_any.subtriggers), any)
        case "after_each":
            return machines.AfterEach(*below(*proto.after_each.subtriggers))
        case "or_finally":
            spec = proto.or_finally
            return machines.OrFinally(*below(spec.main, getattr(spec, "finally")))
        case "repeat":
            return machines.Repeatedly(*below(proto.repeat.subtrigger))
    raise ValueError(f"a trigger of an unknown kind: {kind}")


def _never(proto: Any) -> Any:
    never = type(proto)()
    never.never.SetInParent()
    return never


def _moved(clock_us: int, transforms: Sequence[Any]) -> int:
    """Apply ``TimestampTransform`` protos to an instant; the end of time is the latest one."""
    for transform in transforms:
        if transform.HasField("delay"):
            clock_us += transform.delay.delay_millis * 1000
        else:
            period_us, offset_us = (
                transform.align_to.period * 1000,
                transform.align_to.offset * 1000,
            )
            clock_us = (clock_us - offset_us) // period_us * period_us + period_us + offset_us
    return min(clock_us, MAX_US)
