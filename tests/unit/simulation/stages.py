"""The stages of the simulated pipeline as tasks run them: all that outlives an epoch is stored."""

from collections.abc import Iterable, Sequence
from typing import Any

from apache_beam.coders import TupleCoder, VarIntCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.harness.due import fire_due
from beam_spark_runner.harness.grouping.epoch_groups import GroupsInEpochs
from beam_spark_runner.harness.values.spilled_group import ValueLogs
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timers import Instant, Timer, TimerId
from beam_spark_runner.state.backend import Bag, Cell, StoredTimer
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.stored_residuals import StoredKeyedValues, StoredTimers
from tests.unit.semantics.strategies import coded_strategy
from tests.unit.simulation.counter import WINDOW_CODER, CountedKey
from tests.unit.simulation.elements import (
    VALUE_CODER,
    Advance,
    Row,
    TaskInput,
    TaskOutput,
    coded_key,
    decoded_key,
    group_coder,
    windowed,
)
from tests.unit.simulation.sources import Slice, Sources

_GLOBAL = GlobalWindow()
_CODED_GLOBAL = GlobalWindowCoder().encode(_GLOBAL)
_RESTRICTION = WindowedValueCoder(TupleCoder([VarIntCoder(), VarIntCoder()]), GlobalWindowCoder())


def run_sources(
    store: StoredState, task: TaskInput, sources: Sources, attempt: int, output: TaskOutput
) -> None:
    """Process the restrictions of a task that are due, each once."""
    clock_us = task.clock_us
    timers, values = StoredTimers(store, lambda: clock_us), StoredKeyedValues(store, _RESTRICTION)
    if task.feeds_impulses:
        for source in sources.of_partition(task.partition, task.partitions):
            _store(timers, values, Slice(source, 0, (), clock_us, sources.hold_us(source, 0)))
    for timer in list(timers.due()):
        timers.remove(timer)
        values.set_current_key(timer.key)
        source, position = values.read(timer.window, timer.id).value
        values.clear(timer.window, timer.id)
        taken = sources.take(source, position, clock_us, attempt)
        output.rows += taken.rows
        if not sources.is_done(taken):
            _store(timers, values, taken)


def stored_slices(store: StoredState) -> list[Slice]:
    """Return what is stored of sources."""
    timers, values = StoredTimers(store, lambda: MAX_US), StoredKeyedValues(store, _RESTRICTION)
    found = []
    for timer in timers.due():
        values.set_current_key(timer.key)
        source, position = values.read(timer.window, timer.id).value
        found.append(Slice(source, position, (), timer.fire_at_us, timer.hold_us))
    return found


def _store(timers: StoredTimers, values: StoredKeyedValues, left: Slice) -> None:
    coded, id_ = b"%d" % left.source, f"{left.source}-{left.position}"
    restriction = WindowedValue((left.source, left.position), Timestamp(0), (_GLOBAL,))
    values.set_current_key(coded)
    values.write(_CODED_GLOBAL, id_, restriction)
    timers.set_current_key(coded)
    timers.set_timer(_CODED_GLOBAL, id_, left.due_us, left.hold_us)


class _Panes:
    """Takes what a grouping gives. See ``StoringInput``."""

    def __init__(self, stage: int, output: TaskOutput) -> None:
        self._stage, self._output = stage, output

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        for (key, group), origin in zip(values, origins, strict=True):
            self._output.send(self._stage, origin, key, list(group))

    def flush(self) -> None: ...

    def advance_key(self) -> None: ...

    def begin_key(self, key: bytes) -> None: ...

    def advance_key_until(self, hold_us: int) -> None: ...


class Grouping:
    """What is the same for all epochs of a grouping."""

    def __init__(self, stage: int, windowing: Windowing) -> None:
        self.stage, self.windowing = stage, windowing
        self.coder = group_coder(windowing)
        self.values = WindowedValueCoder(VALUE_CODER, windowing.windowfn.get_window_coder())
        self.edge = Edge(
            dest=DestinationId(stage),
            code=1,
            delivery=Delivery.GROUP_BY_KEY,
            name="Group",
            is_global=False,
            coded_windowing=coded_strategy(windowing),
        )


def run_grouping(
    grouping: Grouping,
    store: StoredState,
    before: Instant,
    now: Instant,
    rows: Sequence[Row],
    interruption: Interruption,
    output: TaskOutput,
) -> list[Advance]:
    """Group the rows of a task, and fire what is due. Returns which keys have advanced."""
    panes = _Panes(grouping.stage, output)
    logs = ValueLogs()
    groups = GroupsInEpochs(
        grouping.edge,
        grouping.coder,
        panes,
        logs,
        store=store,
        before=before,
        now=now,
        interruption=interruption,
        late=LateElements(),
    )
    advances: list[Advance] = []
    window_fn, encode = grouping.windowing.windowfn, grouping.values.get_impl().encode
    for key, some in by_key(rows):
        coded = [encode(windowed(row, window_fn)) for row in some]
        groups.group(coded_key(key), coded, 0)
        advances.append(Advance(key))

    def fire(owner: str, key: bytes) -> None:
        groups.fire(owner, key)
        window = bytes.fromhex(owner.removeprefix("window "))
        decoded = window_fn.get_window_coder().decode(window)
        advances.append(Advance(decoded_key(key), window=decoded))

    fire_due(store, now, fire, interruption)
    groups.finish()
    logs.close()
    return advances


def run_counter(
    store: StoredState,
    before: Instant,
    now: Instant,
    rows: Sequence[Row],
    interruption: Interruption,
    output: TaskOutput,
) -> list[Advance]:
    """Count the rows of a task, and fire the timers that are due. Returns as ``run_grouping``."""
    advances: list[Advance] = []

    def advance(key: str, some: Sequence[Row]) -> None:
        counted = StoredKey(store, key, output)
        counted.take(some, before)
        fired = counted.advance(now, interruption)
        counted.save()
        advances.append(Advance(key, fired))

    for key, some in by_key(rows):
        advance(key, some)
    fire_due(store, now, lambda _, key: advance(decoded_key(key), ()), interruption)
    return advances


class StoredKey(CountedKey):
    """See ``CountedKey``: between epochs its timers and bags are in a store."""

    def __init__(self, store: StoredState, key: str, output: TaskOutput) -> None:
        super().__init__(key, output)
        self._store = store
        for each in store.timers("counter", coded_key(key)):
            window = WINDOW_CODER.decode(each.window)
            id_ = TimerId(each.family, each.tag, window)
            self.set(Timer(id_, each.domain, each.fires_us, each.hold_us))

    def bag(self, window: Any) -> list[int]:
        page = self._store.get(self._address(window))
        assert not page.token
        return list(page.data)

    def add(self, window: Any, value: int) -> None:
        self._store.append(self._address(window), bytes([value % 256]))

    def clear(self, window: Any) -> None:
        self._store.clear(self._address(window))

    def drop(self, window: Any) -> None:
        self._store.drop_window("counter", WINDOW_CODER.encode(window), coded_key(self.key))

    def save(self) -> None:
        """Store what is left."""
        left = [
            StoredTimer(
                each.id.family,
                each.id.tag,
                WINDOW_CODER.encode(each.id.window),
                each.domain,
                each.fires_us,
                each.hold_us,
                b"",
            )
            for each in self.timers.remaining()
        ]
        self._store.set_timers("counter", coded_key(self.key), left)

    def _address(self, window: Any) -> Bag:
        return Bag(Cell("counter", "values", WINDOW_CODER.encode(window), coded_key(self.key)))


def by_key(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Return rows, key by key."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.key, []).append(row)
    return sorted(groups.items())
