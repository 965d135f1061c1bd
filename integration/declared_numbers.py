"""A declarative step that notices numbers that come twice; executors import it by its name."""

from collections.abc import Sequence
from typing import Any

from apache_beam.coders import StrUtf8Coder, VarIntCoder

from beam_spark_runner.transforms import (
    DeclarationContext,
    EventTimer,
    KeyedProcess,
    MapState,
)
from integration.left_reads import leave_reads
from integration.strikes import Strikes

IN_WINDOW = 4
"""How many numbers each key has in each window."""
_WRONG = 1_000_000
_LONG = 300  # characters: the value of a map's entry that does not fit into the pack of its key


class KnowsNumbers(KeyedProcess):
    """Passes the numbers of a key and window on, each once, and adds a zero when the window ends.

    What comes twice, or has not come when the window ends, makes another number. The numbers are
    looked up in a map, and then their count in another one.

    Args:
        left: The folder in which tasks note how many records they continue, which another epoch has
            left, see ``leave_reads``; the map's values are then long, so that its entries are not
            read ahead. Empty: epochs leave what the time decides.
        strikes: Those at events of ``InFlight``.
    """

    known = MapState("known", VarIntCoder(), StrUtf8Coder())
    count = MapState("count", VarIntCoder(), StrUtf8Coder())
    end = EventTimer("end")

    def __init__(self, left: str = "", strikes: Sequence[Strikes] = ()) -> None:
        super().__init__()
        self._strikes = [*strikes]
        self._left, self._length = left, _LONG if left else 1

    def setup(self) -> None:
        """Have this process leave reads."""
        if self._left:
            leave_reads(self._left, [each.meet for each in self._strikes])

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def keep(count: str | None) -> Any:
            following = f"{int(count or 0) + 1:0{self._length}}"
            self.count.put(0, following)
            self.end.set(ctx.window.max_timestamp())
            return self.known.put(ctx.value, following)

        store = ctx.declare("store", keep)
        emit = ctx.declare("emit", lambda _: ctx.output((ctx.key, ctx.value)))
        is_new = ctx.declare("is new", lambda known: not known)
        first = ctx.declare(
            "first", lambda _: self.count.get(0).then_compose(store).then_accept(emit)
        )

        def tell(_: object) -> Any:
            ctx.output((ctx.key, _WRONG))
            return ctx.completed(None)

        again = ctx.declare("again", tell)
        return lambda _: self.known.contains(ctx.value).then_conditionally_compose(
            is_new, first, again
        )

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        counted = ctx.declare_variable(VarIntCoder(), "counted", lambda: 0)

        def read_all(count: str | None) -> Any:
            counted.set(int(count or 0))
            return self.known.items()

        look = ctx.declare("look", read_all)
        check = ctx.declare(
            "check",
            lambda items: ctx.output(
                (ctx.key, 0 if _is_complete(counted.get(), items) else _WRONG)
            ),
        )
        return lambda _: self.count.get(0).then_compose(look).then_accept(check)


def _is_complete(count: int, items: Any) -> bool:
    numbers = sorted(int(number) for _, number in items)
    return count == IN_WINDOW and numbers == list(range(1, IN_WINDOW + 1))
