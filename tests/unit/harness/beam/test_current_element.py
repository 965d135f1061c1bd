"""Errors of user code show the element that was under way, and never another one."""

import gc
import inspect
import re
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import apache_beam as beam
import pytest
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.runners.worker import data_sampler
from apache_beam.transforms.core import NoSideInputsCallableWrapperCombineFn
from apache_beam.transforms.window import FixedWindows, GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.harness.beam.accumulators import Accumulators
from beam_spark_runner.harness.beam.current_element import (
    ChargedChunk,
    CurrentElement,
    ElementOfErrors,
)
from beam_spark_runner.harness.beam.step_choice import Arguments, step_for
from beam_spark_runner.harness.beam.step_loops import AssigningWindows, Combined
from beam_spark_runner.harness.failures import charge, failure_of
from beam_spark_runner.harness.values.constants import Kind
from beam_spark_runner.harness.values.encoded_keys import Places
from tests.unit.harness.beam.step_outputs import Output, origin


def odd(value: Any) -> int:
    return int(1 // (value % 2))


class GoesOn(beam.DoFn):  # type: ignore[misc]
    def process(self, number: int) -> Iterator[int]:
        for each in range(50):
            yield number + each
        odd(number)


def failed(run: Callable[[], object], current_element: CurrentElement) -> str:
    """What is shown of the element."""
    with pytest.raises(BundleFailedError) as raised, ChargedChunk("Step", current_element):
        run()
    assert raised.value.step == "Step"
    _, _, shown = raised.value.traceback_text.partition("[while running 'Step']\n")
    return shown


STEPS = {
    "Map": beam.Map(odd),
    "Map with arguments": beam.Map(lambda n, _: odd(n), 1),
    "MapTuple": beam.MapTuple(lambda n: odd(n)),
    "Filter": beam.Filter(odd),
    "FlatMap": beam.FlatMap(lambda n: [odd(n)]),
    "generator": beam.ParDo(GoesOn()),
}


@pytest.mark.parametrize("kind", [Kind.PLAIN, Kind.OWN])
@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("name", STEPS)
def test_loops(name: str, limit: int, kind: Kind) -> None:
    transform = STEPS[name]
    step = step_for(transform.fn, Arguments(transform.args))
    step.limit = limit
    values: list[Any] = [1, 3, 5, 6, 7, 8]
    expected = "Element: 6\n"
    if name == "MapTuple":
        values, expected = [(value,) for value in values], "Element: (6,)\n"
    origins = [origin(place) for place in range(len(values))]
    shown = failed(lambda: step.run(values, origins, kind, Output()), step.current_element)
    assert shown == expected


def test_what_assigns_windows() -> None:
    class Odd(FixedWindows):  # type: ignore[misc]
        def assign(self, context: Any) -> Any:
            odd(context.element)
            return super().assign(context)

    step = AssigningWindows(Odd(10))
    origins = [origin(place) for place in range(3)]
    shown = failed(lambda: step.run([1, 3, 4], origins, Kind.OWN, Output()), step.current_element)
    assert shown == "Element: 4\n"


def test_combiners() -> None:
    step = Combined(lambda values: odd(sum(values)), makes_lists=False)
    pairs = [("a", [1]), ("b", [3, 1]), ("c", [5])]
    origins = [origin(place) for place in range(3)]
    shown = failed(lambda: step.run(pairs, origins, Kind.OWN, Output()), step.current_element)
    assert shown == "Element: ('b', [3, 1])\n"


@pytest.mark.parametrize("way", ["global", "windowed", "timed"])
def test_accumulators(way: str) -> None:
    class Sum(beam.CombineFn):  # type: ignore[misc]
        def create_accumulator(self) -> int:
            return 0

        def add_input(self, accumulator: int, value: int) -> int:
            return accumulator + odd(value)

    accumulators = Accumulators(
        Sum(),
        lambda _: 10,
        lambda values, origins: None,
        Places(FastPrimitivesCoder()),
        is_global=way == "global",
        combine_timestamps=max if way == "timed" else None,
    )
    origins = [WindowedValue(None, 1, (GlobalWindow(),))] * 3
    pairs = [("a", 1), ("b", 2), ("c", 3)]
    shown = failed(lambda: accumulators.add(pairs, origins), accumulators.current_element)
    assert shown == "Element: ('b', 2)\n"


@pytest.mark.parametrize("element", [7, (None, "three"), (None, 1, 2)])
@pytest.mark.parametrize("place", [0, 15])
def test_accumulators_of_functions(element: Any, place: int) -> None:
    """Elements that cannot be added together are added one by one, so that one is at fault."""
    accumulators = Accumulators(
        NoSideInputsCallableWrapperCombineFn(sum, buffer_size=0),
        lambda _: 10,
        lambda values, origins: None,
        Places(FastPrimitivesCoder()),
        is_global=True,
    )
    accumulators.add([(None, 0)], [origin(0)])
    values: list[Any] = [(None, 1)] * 20
    values[place] = element
    origins = [origin(0)] * len(values)
    shown = failed(lambda: accumulators.add(values, origins), accumulators.current_element)
    assert shown == f"Element: {element!r}\n"


def test_errors_of_later_work_show_no_element() -> None:
    current_element = CurrentElement()
    assert list(current_element.iterate([1, 2])) == [1, 2]
    current_element.end()
    assert failed(lambda: odd(0), current_element) == ""


def test_an_error_before_the_first_value_shows_no_element() -> None:
    current_element = CurrentElement()
    current_element.iterate([1, 2])
    assert failed(lambda: odd(0), current_element) == ""


def test_an_error_that_is_charged_already_is_not_changed() -> None:
    def downstream() -> NoReturn:
        list(current_element.iterate([1]))
        try:
            odd(0)
        except ZeroDivisionError as error:
            charge(error, "Downstream")
        raise AssertionError

    current_element = CurrentElement()
    with pytest.raises(BundleFailedError) as raised, ChargedChunk("Step", current_element):
        downstream()
    assert raised.value.step == "Downstream"
    assert "Element" not in raised.value.traceback_text


@pytest.mark.parametrize("fails", [False, True])
def test_no_value_is_kept(fails: bool) -> None:
    class Value:
        def __mod__(self, number: int) -> int:
            return 0 if fails else 1

    current_element, values = CurrentElement(), [Value()]
    kept = weakref.ref(values[0])
    try:
        with ChargedChunk("Step", current_element):
            list(map(odd, current_element.iterate(values)))
    except BundleFailedError:
        assert fails
    values.clear()
    gc.collect()
    assert kept() is None


def test_beams_own_invoker_reports_an_element_or_none() -> None:
    for element, expected in ((WindowedValue("mine", 1, ()), "Element: 'mine'\n"), (None, "")):
        error = ValueError("boom")
        ElementOfErrors().sample_exception(element, (ValueError, error, None), "t", "i")
        _, _, shown = failure_of(error, "Step").traceback_text.partition("'Step']\n")
        assert shown == expected


def test_what_notes_the_element_of_an_error_takes_what_beam_passes_to_its_samplers() -> None:
    methods = "initialize_samplers", "sampler_for_output", "sample_exception"
    for ours, beams in (
        (ElementOfErrors.initialize_samplers, data_sampler.DataSampler.initialize_samplers),
        (ElementOfErrors.sampler_for_output, data_sampler.DataSampler.sampler_for_output),
        (ElementOfErrors.sample_exception, data_sampler.OutputSampler.sample_exception),
    ):
        assert len(inspect.signature(ours).parameters) == len(inspect.signature(beams).parameters)
    runners = Path(beam.__file__).parent / "runners"
    sources = "common.py", "worker/bundle_processor.py", "worker/operations.py"  # of compiled ones
    texts = [(runners / name).read_text() for name in sources]
    asked = set(re.findall(r"(?:data|output)_sampler\.(\w+)", "".join(texts)))
    assert asked - {"DataSampler", "OutputSampler"} == {*methods, "element_sampler"}
