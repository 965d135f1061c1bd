"""Declarative processes that tests of several layers share."""

from typing import Any

from apache_beam.coders import StrUtf8Coder, VarIntCoder

from beam_spark_runner.transforms import (
    DeclarationContext,
    EventTimer,
    KeyedProcess,
    MapState,
    ValueState,
)


class NewIds(KeyedProcess):
    """Emits each id of a key once with a number, all of them at 100 s, and then forgets them."""

    seen = MapState("seen", StrUtf8Coder(), VarIntCoder())
    count = ValueState("count", VarIntCoder())
    end = EventTimer("end")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        number = ctx.declare_variable(VarIntCoder(), "number", lambda: 0)

        def remember(count: int | None) -> Any:
            number.set((count or 0) + 1)
            self.count.write(number.get())
            self.end.set(100)
            return self.seen.put(ctx.value, number.get())

        store = ctx.declare("remember", remember)
        emit = ctx.declare("emit", lambda _: ctx.output((ctx.key, ctx.value, number.get())))
        is_new = ctx.declare("is new", lambda known: not known)
        read = ctx.declare(
            "read", lambda _: self.count.read().then_compose(store).then_accept(emit)
        )
        return lambda _: self.seen.contains(ctx.value).then_conditionally_compose(is_new, read)

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        return (
            ctx.declare_chain(lambda _: self.seen.items())
            .then_accept(lambda items: ctx.output((ctx.key, sorted(items))))
            .with_name("emit all")
            .then_compose(lambda _: self.seen.clear())
            .finish()
        )


class Lookups(KeyedProcess):
    """Looks up three entries, each of which names the next one; negative elements fill the map."""

    first = MapState("first", VarIntCoder(), StrUtf8Coder())
    second = MapState("second", StrUtf8Coder(), VarIntCoder())
    third = MapState("third", VarIntCoder(), StrUtf8Coder())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def fill(count: int) -> None:
            for number in range(count):
                self.first.put(number, "x" * number)
                self.second.put("x" * number, number + 1)
                self.third.put(number + 1, "y" * 100)

        to_second = ctx.declare("second", lambda found: self.second.get(found))
        to_third = ctx.declare("third", lambda found: self.third.get(found))
        emit = ctx.declare("emit", lambda found: ctx.output((ctx.key, ctx.value, len(found))))

        def element(pair: tuple[Any, int]) -> Any:
            if pair[1] < 0:
                return fill(-pair[1])
            found = self.first.get(pair[1])
            return found.then_compose(to_second).then_compose(to_third).then_accept(emit)

        return element
