"""Elements that are objects of classes of the main module, wherever elements may be."""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.pvalue import AsList
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindows

from tests.spark.main_module import of_main
from tests.spark.random_pipelines.chain import Chain, without_pane


class _Boxed(beam.PTransform):  # type: ignore[misc]
    """Puts numbers into objects, and takes them out after some transform."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self._between = between

    def expand(self, numbers: Any) -> Any:
        boxed, unboxed = of_main("boxed"), of_main("unboxed")
        boxes = numbers | "box" >> beam.Map(lambda n: boxed(n))
        boxes |= self._between
        return boxes | "unbox" >> beam.Map(lambda box: unboxed(box)).with_output_types(int)


class _Held(beam.DoFn):  # type: ignore[misc]
    """Keeps objects in state, in other objects, until the end."""

    KEPT = BagStateSpec("kept", FastPrimitivesCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[int, Any],
        window: Any = beam.DoFn.WindowParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        kept.add({"name": ("boxes", [pair[1], bytes(100)])})
        end.set(window.max_timestamp())

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(self, kept: Any = beam.DoFn.StateParam(KEPT)) -> Iterator[Any]:
        for each in kept.read():
            yield each["name"][1][0]


def _with_key() -> Any:
    return beam.Map(lambda box: (1, box)).with_output_types(tuple[int, Any])


_MAKERS: dict[str, Callable[[], Any]] = {
    "fused": lambda: beam.Map(lambda box: box),
    "reshuffle": lambda: beam.Reshuffle(),
    "group": lambda: Chain(_with_key(), beam.GroupByKey(), beam.FlatMap(lambda pair: pair[1])),
    "list": lambda: Chain(
        _with_key(),
        beam.CombinePerKey(beam.combiners.ToListCombineFn()),
        beam.FlatMap(lambda pair: pair[1]),
    ),
    "hold": lambda: Chain(
        beam.WindowInto(GlobalWindows()), _with_key(), beam.ParDo(_Held()), without_pane()
    ),
}


def _maker(between: Callable[[], Any]) -> Callable[[int], _Boxed]:
    return lambda _: _Boxed(between())


BOXING: dict[str, Callable[[int], _Boxed]] = {
    name: _maker(between) for name, between in _MAKERS.items()
}


class _Beside(beam.PTransform):  # type: ignore[misc]
    def __init__(self, aside: Any) -> None:
        super().__init__()
        self._aside = aside

    def expand(self, numbers: Any) -> Any:
        boxed, unboxed = of_main("boxed"), of_main("unboxed")
        boxes = self._aside | "box" >> beam.Map(lambda n: boxed(n))
        added = beam.Map(lambda n, side: n + sum(map(unboxed, side)), AsList(boxes))
        return numbers | added.with_output_types(int)


def beside(_: int, aside: Any) -> _Beside:
    """Add the numbers in objects of a side input."""
    return _Beside(aside)
