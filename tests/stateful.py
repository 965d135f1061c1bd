"""DoFns with state and timers that tests of several layers share, and elements with times."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder, StrUtf8Coder, VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    OrderedListStateSpec,
    ReadModifyWriteStateSpec,
    SetStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp


def timed(pairs: list[tuple[str, int]]) -> beam.PTransform:
    return beam.Create(pairs) | beam.Map(lambda pair: TimestampedValue(pair, pair[1]))


class Keeps(beam.DoFn):  # type: ignore[misc]
    """Has a state and a timer; nobody ever runs it."""

    SEEN = BagStateSpec("seen", BytesCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(
        self,
        pair: Any,
        seen: Any = beam.DoFn.StateParam(SEEN),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> Any: ...

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def wake(self) -> Any: ...


class Number(beam.DoFn):  # type: ignore[misc]
    """Numbers the elements of each key and window."""

    NEXT = ReadModifyWriteStateSpec("next", VarIntCoder())

    def process(
        self, pair: tuple[str, Any], next_state: Any = beam.DoFn.StateParam(NEXT)
    ) -> Iterator[tuple[str, int]]:
        number = next_state.read() or 0
        next_state.write(number + 1)
        yield pair[0], number


class CountGroups(beam.DoFn):  # type: ignore[misc]
    """Numbers the groups of each key and window."""

    SEEN = CombiningValueStateSpec("seen", sum)

    def process(
        self, group: Any, seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[Any, int, list[int]]]:
        seen.add(1)
        yield group[0], seen.read(), sorted(group[1])


class Collect(beam.DoFn):  # type: ignore[misc]
    """Keeps the elements of each key and window, and gives them out when event time ends."""

    KEPT = BagStateSpec("kept", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        window: Any = beam.DoFn.WindowParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        kept.add(pair[1])
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, kept: Any = beam.DoFn.StateParam(KEPT)
    ) -> Iterator[tuple[str, list[int]]]:
        yield key, sorted(kept.read())
        kept.clear()


class Mixed(beam.DoFn):  # type: ignore[misc]
    """All kinds of state at once; gives out what each of them held before the element."""

    VALUE = ReadModifyWriteStateSpec("value", StrUtf8Coder())
    BAG = BagStateSpec("bag", VarIntCoder())
    SET = SetStateSpec("set", VarIntCoder())
    SUM = CombiningValueStateSpec("sum", sum)
    LIST = OrderedListStateSpec("list", StrUtf8Coder())

    def process(
        self,
        pair: tuple[str, int],
        value: Any = beam.DoFn.StateParam(VALUE),
        bag: Any = beam.DoFn.StateParam(BAG),
        a_set: Any = beam.DoFn.StateParam(SET),
        total: Any = beam.DoFn.StateParam(SUM),
        a_list: Any = beam.DoFn.StateParam(LIST),
    ) -> Iterator[Any]:
        key, number = pair
        low, high = Timestamp(0), Timestamp(5)
        yield (
            key,
            number,
            value.read(),
            sorted(bag.read()),
            sorted(a_set.read()),
            total.read(),
            [(int(time), text) for time, text in a_list.read_range(low, high)],
        )
        if number == 7:
            for state in (value, bag, a_set, total):
                state.clear()
            a_list.clear_range(Timestamp(2), Timestamp(4))
            return
        value.write(str(number))
        bag.add(number)
        bag.add(number)
        a_set.add(number % 2)
        total.add(number)
        a_list.add((Timestamp(number), f"{number}!"))


class Loops(beam.DoFn):  # type: ignore[misc]
    """A timer for the second that the element says; it sets itself again, four seconds later."""

    EACH = TimerSpec("each", TimeDomain.WATERMARK)
    SEEN = CombiningValueStateSpec("seen", sum)

    def process(self, pair: tuple[int, float], each: Any = beam.DoFn.TimerParam(EACH)) -> None:
        each.set(Timestamp(pair[1]))

    @on_timer(EACH)  # type: ignore[untyped-decorator]
    def again(
        self,
        time: Any = beam.DoFn.TimestampParam,
        each: Any = beam.DoFn.TimerParam(EACH),
        seen: Any = beam.DoFn.StateParam(SEEN),
    ) -> Iterator[tuple[float, int]]:
        seen.add(1)
        yield float(time), seen.read()
        each.set(time + 4)


class Fails(beam.DoFn):  # type: ignore[misc]
    """Its timer finds nothing but an error."""

    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(self, pair: Any, due: Any = beam.DoFn.TimerParam(DUE)) -> None:
        due.set(Timestamp(1))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def fail(self) -> None:
        raise LookupError("no such alarm")


class Remembers(beam.DoFn):  # type: ignore[misc]
    """Yields what it has seen of a key and window so far; its timers add to that.

    An element is the time, in seconds, for which it sets the timer; that of the clock fires a
    hundred times as late. 0 clears both, and the value.
    """

    VALUE = ReadModifyWriteStateSpec("value", VarIntCoder())
    BAG = BagStateSpec("bag", VarIntCoder())
    SUM = CombiningValueStateSpec("sum", sum)
    SET = SetStateSpec("set", VarIntCoder())
    LIST = OrderedListStateSpec("list", VarIntCoder())
    EVENT = TimerSpec("event", TimeDomain.WATERMARK)
    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)

    def process(
        self,
        pair: tuple[Any, int],
        value: Any = beam.DoFn.StateParam(VALUE),
        bag: Any = beam.DoFn.StateParam(BAG),
        total: Any = beam.DoFn.StateParam(SUM),
        a_set: Any = beam.DoFn.StateParam(SET),
        a_list: Any = beam.DoFn.StateParam(LIST),
        event: Any = beam.DoFn.TimerParam(EVENT),
        clock: Any = beam.DoFn.TimerParam(CLOCK),
    ) -> Iterator[Any]:
        key, number = pair
        before = value.read()
        value.write(number)
        bag.add(number)
        total.add(number)
        a_set.add(number % 2)
        a_list.add((Timestamp(number), number))
        if number == 0:
            event.clear()
            clock.clear()
            value.clear()
        else:
            event.set(Timestamp(number), dynamic_timer_tag="tag")
            clock.set(Timestamp(100 * number))
        listed = [each for _, each in a_list.read()]
        yield key, before, sorted(bag.read()), total.read(), sorted(a_set.read()), listed

    @on_timer(EVENT)  # type: ignore[untyped-decorator]
    def at(
        self,
        key: Any = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        tag: Any = beam.DoFn.DynamicTimerTagParam,
        total: Any = beam.DoFn.StateParam(SUM),
    ) -> Iterator[Any]:
        yield "event", key, int(time), tag, total.read()

    @on_timer(CLOCK)  # type: ignore[untyped-decorator]
    def on_the_clock(self, key: Any = beam.DoFn.KeyParam) -> Iterator[Any]:
        yield "clock", key
