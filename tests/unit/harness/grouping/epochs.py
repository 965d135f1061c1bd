"""A GroupByKey in one epoch after another, over records in memory."""

from collections.abc import Iterable, Sequence
from typing import Any

from apache_beam.coders import (
    BytesCoder,
    Coder,
    IterableCoder,
    StrUtf8Coder,
    TupleCoder,
    WindowedValueCoder,
)
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import WindowFn
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.harness.due import fire_due
from beam_spark_runner.harness.grouping.epoch_groups import GroupsInEpochs
from beam_spark_runner.harness.grouping.long_windows import MergeAccumulators
from beam_spark_runner.harness.values.spilled_group import ValueLogs
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.state.store import StoredState
from tests.unit.semantics.strategies import coded_strategy
from tests.unit.state.sorted_records import SortedRecords, count_values

SECOND_US = 1_000_000
KEY = StrUtf8Coder().get_impl().encode_nested("k")


class Panes:
    """Gets what is pushed. See ``StoringInput``."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Sequence[Any]]] = []

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        self.seen += values

    def flush(self) -> None: ...

    def advance_key(self) -> None: ...

    def begin_key(self, key: bytes) -> None: ...

    def advance_key_until(self, hold_us: int) -> None: ...


class Epochs:
    """One epoch after another over the same records; the key is always "k"."""

    def __init__(
        self,
        windowing: Windowing,
        value_coder: Coder | None = None,
        page_bytes: int = 1 << 20,
        merge: MergeAccumulators | None = None,
    ) -> None:
        self._merge = merge
        self.records = SortedRecords()
        self._store = StoredState(self.records, 1, count_values, page_bytes=page_bytes)
        self._windowing = windowing
        self._values = value_coder or BytesCoder()
        self._windowed = WindowedValueCoder(self._values, windowing.windowfn.get_window_coder())
        self._before = Instant(MIN_US, 0)
        self.logs = ValueLogs(group_memory_bytes=1000)
        self.late = LateElements()

    @property
    def hold_us(self) -> int | None:
        return self._store.least_hold()

    @property
    def stored_windows(self) -> int:
        return self._store.count_holders()

    def run(
        self,
        *elements: tuple[Any, int],
        watermark: int = -1,
        clock: int = 0,
        interruption: Interruption | None = None,
    ) -> list[Sequence[Any]]:
        """Return the values of the panes that fire in an epoch.

        Args:
            elements: values, and their timestamps in seconds.
            watermark: that comes in the epoch, in seconds; negative: none.
            clock: processing time, in seconds.
            interruption: of what is due.
        """
        panes = Panes()
        watermark_us = watermark * SECOND_US if watermark >= 0 else self._before.watermark_us
        now = Instant(watermark_us, clock * SECOND_US)
        groups = self.groups(panes, now, interruption)
        coded = [
            self._windowed.encode(
                WindowedValue(value, Timestamp(at), _windows(self._windowing.windowfn, at))
            )
            for value, at in elements
        ]
        if coded:
            groups.group(KEY, coded, 0)
        fire_due(self._store, now, groups.fire, interruption)
        groups.finish()
        self._before = now
        assert {key for key, _ in panes.seen} <= {"k"}
        return [values for _, values in panes.seen]

    def stream(self, values: Iterable[bytes]) -> None:
        """Take values of the first second, in a separate epoch."""
        window = _windows(self._windowing.windowfn, 1)
        coded = (
            self._windowed.encode(WindowedValue(value, Timestamp(1), window)) for value in values
        )
        groups = self.groups(Panes(), self._before, None)
        groups.stream(KEY, 0, self.logs.new(), coded)

    def groups(
        self, panes: Panes, now: Instant, interruption: Interruption | None = None
    ) -> GroupsInEpochs:
        window_coder = self._windowing.windowfn.get_window_coder()
        edge = Edge(
            dest=DestinationId(1),
            code=1,
            delivery=Delivery.GROUP_BY_KEY,
            name="Group",
            is_global=False,
            coded_windowing=coded_strategy(self._windowing),
        )
        return GroupsInEpochs(
            edge,
            WindowedValueCoder(
                TupleCoder([StrUtf8Coder(), IterableCoder(self._values)]), window_coder
            ),
            panes,
            self.logs,
            store=self._store,
            before=self._before,
            now=now,
            late=self.late,
            merge=self._merge,
            interruption=interruption,
        )


def _windows(window_fn: WindowFn, at: int) -> tuple[Any, ...]:
    return tuple(window_fn.assign(WindowFn.AssignContext(Timestamp(at))))
