"""CPU time of common steps, for each element: ``python -m benchmarks.idioms [NAME …]``.

Each step is the only one of a stage, in one process: in chunks, and by Beam's own operations
(``--step_chunks=off``). The best of five bundles counts.
"""

import argparse
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.util import Reify
from apache_beam.transforms.window import FixedWindows, GlobalWindow, TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.core.step_chunks import StepChunks
from beam_spark_runner.harness.beam.embedded_stage import EmbeddedStage
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.pipeline import from_proto
from tests.unit.portable.pipelines import one_stage, output_of, proto_of

_ELEMENTS = 30_000
_PER_PUSH = 1_000
_BUNDLES = 5
_TIME: Any = beam.DoFn.TimestampParam
_WINDOW: Any = beam.DoFn.WindowParam
_PANE: Any = beam.DoFn.PaneInfoParam


class _Yields(beam.DoFn):  # type: ignore[misc]
    def process(self, value: Any) -> Iterator[Any]:
        yield value


class _Counts(beam.DoFn):  # type: ignore[misc]
    def __init__(self) -> None:
        self._counter = Metrics.counter("idioms", "calls")

    def process(self, value: Any) -> Iterator[Any]:
        self._counter.inc()
        yield value


class _WithTime(beam.DoFn):  # type: ignore[misc]
    def process(self, value: Any, at: Any = _TIME) -> Iterator[Any]:
        yield value


class _WithWindow(beam.DoFn):  # type: ignore[misc]
    def process(self, value: Any, window: Any = _WINDOW) -> Iterator[Any]:
        yield value


class _WithPane(beam.DoFn):  # type: ignore[misc]
    def process(self, value: Any, pane: Any = _PANE) -> Iterator[Any]:
        yield value


class _Tags(beam.DoFn):  # type: ignore[misc]
    def process(self, value: Any) -> Iterator[Any]:
        yield value
        if value % 100 == 0:
            yield TaggedOutput("hundreds", value)


class _Batches(beam.DoFn):  # type: ignore[misc]
    def start_bundle(self) -> None:
        self._batch: list[Any] = []

    def process(self, value: Any) -> Iterator[list[Any]]:
        self._batch.append(value)
        if len(self._batch) >= 100:
            yield self._batch
            self._batch = []


class _Idiom(NamedTuple):
    apply: Callable[[Any], Any]
    value: Callable[[int], Any] = lambda number: number


def _word(number: int) -> str:
    return f"a{number} b"


def _pair(number: int) -> tuple[int, int]:
    return number % 100, number


_IDIOMS: dict[str, _Idiom] = {
    "Map": _Idiom(lambda p: p | beam.Map(lambda value: value + 1)),
    "Map(str)": _Idiom(lambda p: p | beam.Map(str)),
    "Map with a default": _Idiom(lambda p: p | beam.Map(lambda value, more=1: value + more)),
    "Map with the time": _Idiom(lambda p: p | beam.Map(lambda value, at=_TIME: value)),
    "Map with the window": _Idiom(lambda p: p | beam.Map(lambda value, window=_WINDOW: value)),
    "Filter": _Idiom(lambda p: p | beam.Filter(lambda value: value % 2)),
    "FlatMap": _Idiom(lambda p: p | beam.FlatMap(lambda line: line.split()), _word),
    "DoFn": _Idiom(lambda p: p | beam.ParDo(_Yields())),
    "DoFn with the time": _Idiom(lambda p: p | beam.ParDo(_WithTime())),
    "DoFn with the window": _Idiom(lambda p: p | beam.ParDo(_WithWindow())),
    "DoFn with the pane": _Idiom(lambda p: p | beam.ParDo(_WithPane())),
    "DoFn with a counter": _Idiom(lambda p: p | beam.ParDo(_Counts())),
    "DoFn with tags": _Idiom(lambda p: p | beam.ParDo(_Tags()).with_outputs(main="all")),
    "DoFn that batches": _Idiom(lambda p: p | beam.ParDo(_Batches())),
    "Partition": _Idiom(lambda p: p | beam.Partition(lambda value, parts: value % parts, 2)),
    "TimestampedValue": _Idiom(lambda p: p | beam.Map(lambda n: TimestampedValue(n, n))),
    "WindowInto": _Idiom(lambda p: p | beam.WindowInto(FixedWindows(60))),
    "Reify.Timestamp": _Idiom(lambda p: p | Reify.Timestamp()),
    "WithKeys": _Idiom(lambda p: p | beam.WithKeys(lambda value: value % 10)),
    "Values": _Idiom(lambda p: p | beam.Values(), _pair),
    "KvSwap": _Idiom(lambda p: p | beam.KvSwap(), _pair),
    "Row": _Idiom(lambda p: p | beam.Map(lambda value: beam.Row(a=value, b="b"))),
    "Select": _Idiom(lambda p: p | beam.Select("a"), lambda n: beam.Row(a=n, b="b")),
    "exceptions": _Idiom(lambda p: p | beam.Map(lambda value: value + 1).with_exception_handling()),
    "BatchElements": _Idiom(lambda p: p | beam.BatchElements(10, 100)),
}


class _Receiver:
    def accept(self, element: WindowedValue) -> None:
        pass

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        pass


def _plan_of(idiom: _Idiom) -> Plan:
    def build(pipeline: beam.Pipeline) -> None:
        idiom.apply(pipeline | "source" >> beam.Impulse().with_output_types(Any))

    graph = from_proto(proto_of(build))
    steps = [step for step in graph.transforms.values() if step.name != "source"]
    are_read = {collection for step in steps for collection in step.inputs.values()}
    return one_stage(
        graph,
        [step.name for step in steps],
        input_=output_of(graph, "source"),
        outputs=[
            collection
            for step in steps
            for collection in step.outputs.values()
            if collection not in are_read
        ],
    )


def _cpu_us(plan: Plan, values: list[Any], step_chunks: StepChunks) -> float:
    """Return the CPU time for each element."""
    stage = EmbeddedStage("idioms", describe(plan, StageId(0)), step_chunks=step_chunks)
    origins = [WindowedValue(None, 0, (GlobalWindow(),))] * _PER_PUSH
    times: list[float] = []
    for _ in range(_BUNDLES):
        bundle = stage.start_bundle({each: _Receiver() for each in stage.output_coders}, {})
        began_s = time.process_time()
        for start in range(0, len(values), _PER_PUSH):
            bundle.push(values[start : start + _PER_PUSH], origins)
            bundle.flush()
        bundle.finish()
        times.append(time.process_time() - began_s)
    stage.close()
    return min(times) / len(values) * 1e6


def main(names: Iterable[str]) -> None:
    """Print the CPU times of steps."""
    logging.disable(logging.WARNING)
    print("µs of CPU time for each element: in chunks, by Beam's own operations")
    for name in names or _IDIOMS:
        idiom = _IDIOMS[name]
        plan, values = _plan_of(idiom), [idiom.value(number) for number in range(_ELEMENTS)]
        chunks, beams = (_cpu_us(plan, values, setting) for setting in ("auto", "off"))
        print(f"{name}: {chunks:.2f}, {beams:.2f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*_IDIOMS, []], metavar="NAME")
    main(parser.parse_args().names)
