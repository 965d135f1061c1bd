"""A declarative step, by the runner's own code: epochs may leave its records for the next one."""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.transforms.window import FixedWindows
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated import store_pb2
from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS
from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.harness.beam.embedded_stage import EmbeddedBundle, EmbeddedStage
from beam_spark_runner.harness.due import fire_due
from beam_spark_runner.harness.stored_in_flight import store_left, take_left
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.state.policy import KeyPolicy
from beam_spark_runner.state.requests import declared_states, use_maps, value_counter
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.transforms import (
    DeclarationContext,
    DeclarativeKeyedProcess,
    EventTimer,
    KeyedProcess,
    MapState,
)
from tests.compiled import compile_pipeline
from tests.unit.portable.pipelines import proto_of
from tests.unit.simulation.elements import (
    LOOKED,
    SECOND_US,
    Row,
    TaskOutput,
    decoded_key,
    windowed,
)

WINDOWS = FixedWindows(20)
FIRST, SECOND = 3, 2
"""How many entries each of two maps has."""
_CODER = WINDOWS.get_window_coder()
_LONG = 300  # characters: a value that does not fit into the pack of its key


class Item(NamedTuple):
    """A record of a key: an element, or a timer that has fired.

    Attributes:
        kind: "element", "due" for a timer, "end" for the end of a window.
        number: the value of the element, or of the timer's tag.
        time_us: its timestamp, the last one of a window that ends.
        window: its window.
    """

    kind: str
    number: int
    time_us: int
    window: Any


class Looks(KeyedProcess):
    """Looks up an entry, and then one of another map; both are counted up.

    A timer does the same to all of the first map, and so does the end of the window.
    """

    first = MapState("first", VarIntCoder(), StrUtf8Coder())
    second = MapState("second", VarIntCoder(), StrUtf8Coder())
    due = EventTimer("due")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        before = ctx.declare_variable(VarIntCoder(), "before", lambda: 0)

        def look(found: str | None) -> Any:
            before.set(int(found or 0))
            return self.second.get(ctx.value % SECOND)

        def count(found: str | None) -> Any:
            value, again = ctx.value, int(found or 0)
            due_us = due_of(ctx.timestamp.micros, ctx.window)
            self.due.set(Timestamp(micros=due_us), tag=str(value % 2))
            ctx.output((ctx.key, "element", value, (before.get(), again)))
            self.second.put(value % SECOND, f"{again + 1:0{_LONG}}")
            return self.first.put(value % FIRST, f"{before.get() + 1:0{_LONG}}")

        then, last = ctx.declare("look", look), ctx.declare("count", count)
        return lambda _: self.first.get(ctx.value % FIRST).then_compose(then).then_compose(last)

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        tag = ctx.declare_variable(VarIntCoder(), "tag", lambda: 0)
        numbers = ctx.declare_variable(StrUtf8Coder(), "numbers", str)

        def look(items: Any) -> Any:
            numbers.set(" ".join(str(int(value)) for _, value in sorted(items)))
            return self.second.get(0)

        def tell(found: str | None) -> Any:
            told = (*map(int, numbers.get().split()), int(found or 0))
            ctx.output((ctx.key, "due", tag.get(), told))
            return self.first.remove(0)

        then, last = ctx.declare("look at all", look), ctx.declare("tell", tell)

        def fired(timer: Any) -> Any:
            tag.set(int(timer.tag))
            return self.first.items().then_compose(then).then_compose(last)

        return fired

    def declare_on_window_expiration(self, ctx: DeclarationContext) -> Any:
        tell = ctx.declare("tell the end", self._told(ctx))
        return lambda _: self.first.items().then_accept(tell)

    def _told(self, ctx: DeclarationContext) -> Any:
        def told(items: Any) -> None:
            ctx.output((ctx.key, "end", 0, tuple(int(value) for _, value in sorted(items))))

        return told


def due_of(time_us: int, window: Any) -> int:
    """Return when the timer of an element fires: before the end of its window."""
    due_us: int = min(time_us + 3 * SECOND_US, window.end.micros - SECOND_US)
    return due_us


def end_us(window: Any) -> int:
    """Return the timestamp of what is emitted when a window ends."""
    return whole_milliseconds(window.max_timestamp().micros)


@functools.cache
def description() -> StageDescription:
    """Return the stage of the step."""

    def build(p: beam.Pipeline) -> None:
        pairs = p | beam.Impulse() | beam.FlatMap(list).with_output_types(tuple[str, int])
        looked = pairs | beam.WindowInto(WINDOWS) | DeclarativeKeyedProcess(Looks())
        looked | beam.Reshuffle() | beam.Map(print)  # of another stage

    plan = compile_pipeline(proto_of(build))
    (stage,) = (id_ for id_, each in plan.stages.items() if each.is_keyed)
    return describe(plan, stage)


def transform() -> str:
    """Return the id of the step, by which its keys are stored."""
    ((id_, _),) = description().step_names.items()
    return str(id_)


@functools.cache
def counts() -> Any:
    """Return what counts the values of its states, see ``StoredState``."""
    descriptor = description().descriptor()
    use_maps(descriptor)
    return value_counter(descriptor, declared_states(descriptor))


_idle: list[EmbeddedStage] = []


@contextmanager
def _bundle(policy: KeyPolicy, taken: "_Taken") -> Iterator[EmbeddedBundle]:
    """Start a bundle, of a stage for it alone: several attempts run at the same time."""
    stage = _idle.pop() if _idle else EmbeddedStage("looked", description())
    bundle = stage.start_bundle(dict.fromkeys(stage.output_coders, taken), {}, policy)
    try:
        bundle.enter()
        yield bundle
        bundle.finish()
    except BaseException:
        bundle.abort()
        raise
    _idle.append(stage)


class _Taken:
    """See ``Receiver``."""

    def __init__(self, output: TaskOutput) -> None:
        self._output = output

    def accept(self, element: WindowedValue) -> None:
        key, kind, number, told = element.value
        (window,) = element.windows
        item = Item(kind, number, element.timestamp.micros, window)
        self._output.done.append((key, item))
        emit(self._output, key, item, told)

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        for value, origin in zip(values, origins, strict=True):
            self.accept(origin.with_value(value))


def emit(output: TaskOutput, key: str, item: Item, told: tuple[int, ...]) -> None:
    """Take what a record has told out of the stage."""
    element = WindowedValue(None, Timestamp(micros=item.time_us), (item.window,))
    output.send(LOOKED, element, f"{key}-{item.kind}{item.number}", told)


def run_looked(
    left_store: StoredState,
    store: StoredState,
    before: Instant,
    now: Instant,
    rows: Sequence[tuple[str, list[Row]]],
    interruption: Interruption,
    output: TaskOutput,
    *,
    leaves: bool,
) -> bool:
    """Process what an epoch has left, and rows, key by key; fire the timers that are due.

    Args:
        left_store: what is stored of the stage in the shard.
        store: its keys; the same if there is no state store.
        before: until when the stage came before.
        now: until when it comes.
        rows: of the task, by key.
        interruption: decides when timers are left.
        output: gets the outputs.
        leaves: whether records are left as soon as one read was made.

    Returns:
        Whether nothing that could be done is left.
    """
    restored = take_left(left_store)
    if not restored and not rows and store.is_empty():
        return True
    policy = KeyPolicy(
        now,
        store,
        before.watermark_us,
        in_flight=FLIGHT_LIMITS,
        clock_us=before.clock_us,
        interruption=interruption,
        leaves_after_us=0 if leaves and store.batches is not None else None,
    )
    with _bundle(policy, _Taken(output)) as bundle:
        if restored:
            bundle.restore(restored)
        for key, some in rows:
            elements = [windowed(row, WINDOWS) for row in some]
            pairs = [(key, each.value) for each in elements]
            bundle.push(
                pairs,
                [each.with_value(pair) for each, pair in zip(elements, pairs, strict=True)],
            )
            bundle.advance_key()

        def fire(_: str, key: bytes) -> None:
            bundle.begin_key(key)
            bundle.advance_key()

        interruption.begin_again()
        fire_due(store, now, fire, interruption)
        settled = bundle.settle()
    store_left(left_store, settled.left)
    for each in settled.left:
        output.left.append((decoded_key(each.key), _item_of(each.coded)))
    return settled.is_finished


def _item_of(coded: bytes) -> Item:
    proto = store_pb2.RecordLeft.FromString(coded)
    if proto.HasField("timer"):
        timer = proto.timer
        window = _CODER.decode(timer.window)
        if not timer.tag:
            return Item("end", 0, end_us(window), window)
        return Item("due", int(timer.tag), timer.fires_us, window)
    stage = _idle[-1]
    element = stage.input_coder.decode(proto.element)
    (window,) = element.windows
    return Item("element", element.value[1], element.timestamp.micros, window)
