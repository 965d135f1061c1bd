"""What a state has is gone once it was cleared: of each kind, whatever has written it."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner.transforms import (
    BagState,
    CombiningState,
    DeclarationContext,
    DeclarativeKeyedProcess,
    EventTimer,
    KeyedProcess,
    MapState,
    OrderedListState,
    SetState,
    ValueState,
)
from tests.declared_programs import plain
from tests.harvest import RARE_HARNESSES, Harvest, harvest, harvest_on

TEXT, INT = StrUtf8Coder(), VarIntCoder()
COMMANDS = ["read", "fill", "read", "clear", "read", "fill", "read", "clear and fill", "read"]
EMPTY: list[Any] = [None, [], 0, [], [], []]
FULL: list[Any] = [5, [5], 5, ["five"], [("five", 5)], [(5, 5)]]
READ = [EMPTY, FULL, EMPTY, FULL, FULL]


class Clears(KeyedProcess):
    """Fills, clears and reads all of its states. Its timers are cleared, too: none fires."""

    value, bag, sum = ValueState("value", INT), BagState("bag", INT), CombiningState("sum", sum)
    set, map = SetState("set", TEXT), MapState("map", TEXT, INT)
    list = OrderedListState("list", INT)
    end = EventTimer("end")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def fill() -> None:
            self.value.write(5)
            self.bag.add(5)
            self.sum.add(5)
            self.set.add("five")
            self.map.put("five", 5)
            self.list.add(5, 5)
            self.end.set(100)
            self.end.set(100, tag="tagged")

        def clear() -> None:
            for state in (self.value, self.bag, self.sum, self.set, self.map, self.list):
                state.clear()
            self.end.clear()
            self.end.clear("tagged")

        def read() -> None:
            readers = (self.value, self.bag, self.sum, self.set)
            futures = [*(state.read() for state in readers), self.map.items(), self.list.read()]
            ctx.combine_all(futures).then_accept(
                lambda results: ctx.output((ctx.value[0], [plain(result) for result in results]))
            )

        run = {"fill": fill, "clear": clear, "read": read}

        def element(_: Any) -> None:
            for command in ctx.value[1].split(" and "):
                run[command]()

        return element

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        return lambda timer: ctx.output((ctx.key, timer.tag))


def commands() -> list[Any]:
    """Return the commands for a key, which it gets in this order, and end without a timer."""
    return [("key", each) for each in enumerate([*COMMANDS, "clear"])]


def in_batch(p: beam.Pipeline) -> dict[str, Any]:
    each = beam.FlatMap(lambda pairs: pairs).with_output_types(tuple[str, Any])
    pairs = p | beam.Create([commands()], reshuffle=False) | each
    return {"read": pairs | DeclarativeKeyedProcess(Clears())}


def in_epochs(size: int) -> Callable[[beam.Pipeline], dict[str, Any]]:
    """Return a pipeline whose epochs have some commands each."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events, given = Stream(), commands()
        for start in range(0, len(given), size):
            events.add_elements([TimestampedValue(each, 1) for each in given[start : start + size]])
        each = beam.Map(lambda pair: pair).with_output_types(tuple[str, Any])
        pairs = p | events.advance_watermark_to_infinity() | each
        return {"read": pairs | DeclarativeKeyedProcess(Clears())}

    return build


def check(found: Harvest) -> None:
    assert [read for _, read in sorted(found["read"], key=str)] == READ


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_states_are_cleared_in_batch(spark_session: Any, flags: tuple[str, ...]) -> None:
    check(harvest(spark_session, in_batch, *flags))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_states_are_cleared_in_epochs(
    spark_session: Any, flags: tuple[str, ...], size: int
) -> None:
    check(harvest(spark_session, in_epochs(size), "--streaming", *flags))


def test_states_are_cleared_on_beams_runner() -> None:
    check(harvest_on("FnApiRunner", in_batch))
