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
