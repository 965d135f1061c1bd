"""Steps with every kind of user state, and with timers of one family under several tags."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import PickleCoder, StrUtf8Coder, VarIntCoder
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

from beam_spark_runner.transforms import (
    DeclarationContext,
    EventTimer,
    KeyedProcess,
    MapState,
    SetState,
    ValueState,
)

Numbers = tuple[int, ...]
FIRST, SECOND = "first", "second"
END_S = 35
"""When ``Declared`` emits what it has kept."""


class EveryState(beam.DoFn):  # type: ignore[misc]
    """Gives what each kind of state has kept of a key and window, at its end."""

    BAG = BagStateSpec("bag", VarIntCoder())
    VALUE = ReadModifyWriteStateSpec("value", VarIntCoder())
    PICKLED = ReadModifyWriteStateSpec("pickled", PickleCoder())
    SUM = CombiningValueStateSpec("sum", sum)
    SET = SetStateSpec("set", VarIntCoder())
    ORDERED = OrderedListStateSpec("ordered", VarIntCoder())
    ENDS = TimerSpec("ends", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, Numbers],
        window: Any = beam.DoFn.WindowParam,
        at: Any = beam.DoFn.TimestampParam,
        bag: Any = beam.DoFn.StateParam(BAG),
        value: Any = beam.DoFn.StateParam(VALUE),
        pickled: Any = beam.DoFn.StateParam(PICKLED),
        sum_: Any = beam.DoFn.StateParam(SUM),
        set_: Any = beam.DoFn.StateParam(SET),
        ordered: Any = beam.DoFn.StateParam(ORDERED),
        ends: Any = beam.DoFn.TimerParam(ENDS),
    ) -> None:
        number = pair[1][0]
        bag.add(number)
        value.write(max(number, value.read() or 0))
        pickled.write({"highest": max(number, (pickled.read() or {"highest": 0})["highest"])})
        sum_.add(number)
        set_.add(number % 3)
        ordered.add((at, number))
        for tag in (FIRST, SECOND):
            ends.set(window.max_timestamp(), dynamic_timer_tag=tag)

    @on_timer(ENDS)  # type: ignore[untyped-decorator]
    def give(
        self,
        key: Any = beam.DoFn.KeyParam,
        tag: Any = beam.DoFn.DynamicTimerTagParam,
        bag: Any = beam.DoFn.StateParam(BAG),
        value: Any = beam.DoFn.StateParam(VALUE),
        pickled: Any = beam.DoFn.StateParam(PICKLED),
        sum_: Any = beam.DoFn.StateParam(SUM),
        set_: Any = beam.DoFn.StateParam(SET),
        ordered: Any = beam.DoFn.StateParam(ORDERED),
    ) -> Iterator[tuple[str, Numbers]]:
        if tag == FIRST:
            yield key, (*sorted(bag.read()), value.read(), sum_.read())
        else:
            listed = [number for _, number in ordered.read()]
            yield key, (*sorted(set_.read()), *listed, pickled.read()["highest"])


class Declared(KeyedProcess):
    """Gives what the states that only declarative steps have kept of a key, at ``END_S``."""

    numbers = MapState("numbers", StrUtf8Coder(), VarIntCoder())
    odd = SetState("odd", VarIntCoder())
    any_value = ValueState("any value", StrUtf8Coder())
    end = EventTimer("end")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def keep(pair: tuple[str, int]) -> None:
            number = pair[1]
            self.numbers.put(str(number), number)
            self.odd.add(number % 2)
            self.any_value.write("kept")
            self.end.set(END_S)

        return keep

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        def give(items: Any) -> None:
            ctx.output((ctx.key, tuple(sorted(number for _, number in items))))

        return (
            ctx.declare_chain(lambda _: self.numbers.items())
            .then_accept(give)
            .with_name("give")
            .then_compose(lambda _: self.odd.read())
            .then_accept(lambda odd: ctx.output((ctx.key, tuple(sorted(odd)))))
            .with_name("give odd")
            .then_compose(lambda _: self.any_value.read())
            .then_accept(lambda value: ctx.output((ctx.key, (len(value),))))
            .with_name("give value")
            .finish()
        )
