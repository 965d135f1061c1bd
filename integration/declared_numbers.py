"""A declarative step that notices numbers that come twice; executors import it by its name."""

from typing import Any

from apache_beam.coders import VarIntCoder

from beam_spark_runner.transforms import (
    DeclarationContext,
    EventTimer,
    KeyedProcess,
    MapState,
    ValueState,
)

IN_WINDOW = 4
"""How many numbers each key has in each window."""
_WRONG = 1_000_000


class KnowsNumbers(KeyedProcess):
    """Passes the numbers of a key and window on, each once, and adds a zero when the window ends.

    What comes twice, or has not come when the window ends, makes another number. The numbers are
    looked up in a map, and their count is a state of its own.
    """

    known = MapState("known", VarIntCoder(), VarIntCoder())
    count = ValueState("count", VarIntCoder())
    end = EventTimer("end")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def keep(count: int | None) -> Any:
            self.count.write((count or 0) + 1)
            self.end.set(ctx.window.max_timestamp())
            return self.known.put(ctx.value, (count or 0) + 1)

        store = ctx.declare("store", keep)
        emit = ctx.declare("emit", lambda _: ctx.output((ctx.key, ctx.value)))
        is_new = ctx.declare("is new", lambda known: not known)
        first = ctx.declare(
            "first", lambda _: self.count.read().then_compose(store).then_accept(emit)
        )

        def tell(_: object) -> Any:
            ctx.output((ctx.key, _WRONG))
            return ctx.completed(None)

        again = ctx.declare("again", tell)
        return lambda _: self.known.contains(ctx.value).then_conditionally_compose(
            is_new, first, again
        )

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        check = ctx.declare(
            "check",
            lambda found: ctx.output((ctx.key, 0 if _is_complete(*found) else _WRONG)),
        )
        return lambda _: ctx.combine_all([self.count.read(), self.known.items()]).then_accept(check)


def _is_complete(count: int | None, items: Any) -> bool:
    numbers = sorted(number for _, number in items)
    return count == IN_WINDOW and numbers == list(range(1, IN_WINDOW + 1))
