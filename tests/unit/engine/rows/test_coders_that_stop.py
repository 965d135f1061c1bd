"""A coder, or a WindowFn, that raises StopIteration: the step fails, no element is lost."""

import itertools
import random
from typing import Any

import pytest
from apache_beam.coders import BytesCoder, IterableCoder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import Coder, GlobalWindowCoder, IntervalWindowCoder
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindow, IntervalWindow, Sessions, TimestampCombiner
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.readers import reader_for
from beam_spark_runner.harness.values.opaque import OpaqueValues
from beam_spark_runner.harness.values.spilled_group import ValueLogs
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.semantics.grouping import WindowGrouping
from tests.unit.engine.rows.test_large_group_readers import sessions_edge
from tests.unit.engine.rows.written_rows import Pushing, as_spark_would, edge_of, written
from tests.unit.semantics.strategies import strategy_of

STOPS = b"5"
GLOBAL = GlobalWindow()


class Stopping(Coder):  # type: ignore[misc]
    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, coded: bytes) -> bytes:
        if coded == STOPS:
            raise StopIteration
        return coded


def stopping(coded: bytes) -> bytes:
    decoded: bytes = Stopping().decode(coded)
    return decoded


VALUES = [b"%d" % n for n in range(10)]
PLAIN = TupleCoder([BytesCoder(), BytesCoder()])


@pytest.mark.parametrize("limit_bytes", [1, 1 << 20], ids=["large", "small"])
@pytest.mark.parametrize(
    ("kind", "window"),
    [
        *itertools.product(
            ["elements", "groups", "keys of groups", "keyed", "keys of keyed"],
            [GLOBAL, IntervalWindow(0, 5)],
        ),
        ("sessions", IntervalWindow(0, 5)),
    ],
    ids=str,
)
def test_readers_fail_the_step(kind: str, window: Any, limit_bytes: int) -> None:
    is_global = window is GLOBAL
    window_coder = GlobalWindowCoder() if is_global else IntervalWindowCoder()
    delivery = {"elements": Delivery.REDISTRIBUTE, "keyed": Delivery.BY_KEY}.get(
        kind.rpartition(" ")[2], Delivery.GROUP_BY_KEY
    )
    edge = sessions_edge() if kind == "sessions" else edge_of(delivery, is_global=is_global)
    stop = Stopping()
    values: list[Any]
    if kind == "elements":
        values, coder, read_coder = VALUES, BytesCoder(), stop
    else:
        of_keys = kind.startswith("keys")
        values = [(v, b"v") if of_keys else (b"k", v) for v in VALUES]
        coder = PLAIN
        key, value = (stop, BytesCoder()) if of_keys else (BytesCoder(), stop)
        read_coder = TupleCoder([key, value if "keyed" in kind else IterableCoder(value)])
    elements = [WindowedValue(value, Timestamp(0), (window,)) for value in values]
    batches = written(edge, WindowedValueCoder(coder, window_coder), elements)

    def push(element: WindowedValue) -> None:
        if delivery is Delivery.GROUP_BY_KEY:
            try:
                list(element.value[1])
            except RuntimeError as error:  # in user code, which is charged
                raise BundleFailedError("Outer/step", str(error), "") from error

    reader = reader_for(
        edge, WindowedValueCoder(read_coder, window_coder), Pushing(push), ValueLogs(limit_bytes)
    )
    cursor = RowCursor(as_spark_would(edge, batches, random.Random(2), 30), {7}, pytest.fail)

    def read_all() -> None:
        while cursor.load():
            reader.read(cursor)

    with pytest.raises(BundleFailedError, match="StopIteration") as raised:
        read_all()
    assert raised.value.step == "Outer/step"


def test_values_that_are_decoded_on_demand() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(OpaqueValues(VALUES, stopping))


class StoppingSessions(Sessions):  # type: ignore[misc]
    """Raises in one of its methods."""

    def __init__(self, method: str) -> None:
        super().__init__(5)
        self._method = method

    def merge(self, merge_context: Any) -> None:
        if self._method == "merge":
            raise StopIteration
        super().merge(merge_context)

    def get_transformed_output_time(self, window: Any, input_timestamp: Any) -> Any:
        if self._method == "output time" and input_timestamp == Timestamp(1):
            raise StopIteration
        return super().get_transformed_output_time(window, input_timestamp)


@pytest.mark.parametrize("method", ["merge", "output time"])
def test_grouping_turns_stop_iteration_of_a_window_fn_into_an_error(method: str) -> None:
    grouping = WindowGrouping(
        strategy_of(
            Windowing(
                StoppingSessions(method),
                timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST_TRANSFORMED,
            )
        )
    )
    values = [WindowedValue(n, n, (IntervalWindow(n, n + 5),)) for n in range(3)]
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(grouping.panes("key", values))
