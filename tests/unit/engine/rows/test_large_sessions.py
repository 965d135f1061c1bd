"""Large groups in merging windows."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.coders import (
    BytesCoder,
    WindowedValueCoder,
)
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import IntervalWindow, Sessions
from apache_beam.utils.windowed_value import (
    WindowedValue,
)

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.engine.rows.joined_keys import join_key
from beam_spark_runner.harness.grouping.grouping_operator import GroupsInPanes
from beam_spark_runner.harness.values.spilled_group import (
    MEMORY_LIMIT_BYTES,
    GroupClosedError,
    StreamedValues,
    ValueLogs,
)
from beam_spark_runner.plan.model import Delivery
from tests.unit.engine.rows.written_rows import Pushing, edge_of, pair_coders


def sessions(push: Callable[[WindowedValue], None], logs: ValueLogs) -> GroupsInPanes:
    windowing = Windowing(Sessions(5)).to_runner_api(PipelineContext())
    edge = dataclasses.replace(
        edge_of(Delivery.GROUP_BY_KEY, is_global=False),
        coded_windowing=windowing.SerializeToString(),
    )
    _, group_coder = pair_coders(IntervalWindowCoder())
    return GroupsInPanes(edge, group_coder, Pushing(push), logs)


def test_a_large_session_is_kept_with_its_element() -> None:
    """Until the bundle ends: Beam's BatchElements keeps elements so long."""
    coder = WindowedValueCoder(BytesCoder(), IntervalWindowCoder())
    values = [bytes([n]) * (MEMORY_LIMIT_BYTES // 100) for n in range(200)]
    coded = [coder.encode(WindowedValue(each, 3, (IntervalWindow(0, 5),))) for each in values]
    kept: list[tuple[bytes, Any]] = []
    logs = ValueLogs()
    operator = sessions(lambda group: kept.append(group.value), logs)
    operator.stream(join_key(b"key", b""), 0, logs.new(), iter(coded))
    ((_, streamed),) = kept
    assert isinstance(streamed, StreamedValues)
    assert list(streamed) == values
    logs.close()
    with pytest.raises(GroupClosedError):
        list(streamed)


class UnwantedError(Exception):
    """What a task is expected that nobody wants any more."""

    _tagged_with_step = True


@pytest.mark.parametrize(
    ("error", "expected"),
    [(UnwantedError(), UnwantedError), (ValueError("not these"), BundleFailedError)],
    ids=["of the task", "of anything else"],
)
def test_merging_a_large_key_passes_on_what_no_step_has_raised(
    error: Exception, expected: type[Exception]
) -> None:
    logs = ValueLogs()
    operator = sessions(pytest.fail, logs)

    def fail(_: bytes) -> bytes:
        raise error

    with pytest.raises(expected) as raised:
        operator.stream(b"key", 0, logs.new(), map(fail, [b""]))
    if isinstance(raised.value, BundleFailedError):
        assert raised.value.step == "Outer/step"
