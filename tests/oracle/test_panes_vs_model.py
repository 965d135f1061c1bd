"""The pane machine gives what the model of random streaming pipelines gives, without Spark.

``RANDOM_PANES`` says for how many packs of windowings and scripts.
"""

import os
from collections import defaultdict
from collections.abc import Iterator

import pytest
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfoTiming, WindowedValue

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.semantics.panes import PaneMachine
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.semantics.window_states import KeyWindows
from tests.spark.random_streams.model.groups import Groups
from tests.spark.random_streams.model.play import windowed
from tests.spark.random_streams.model.times import END, START, Element, Now
from tests.spark.random_streams.recipes import draw_pack
from tests.spark.random_streams.scripts import Add, Clock, Script, Watermark
from tests.spark.random_streams.windowings import Windowing
from tests.unit.semantics.strategies import strategy_of

PACK = 12
PACKS = int(os.environ.get("RANDOM_PANES", "12"))


def _moments(script: Script, windowing: Windowing) -> Iterator[tuple[list[Element], Now]]:
    """Yield what arrives and how far time has come, event by event; all of one output."""
    watermark, clock = START, 0
    for event in (*script, Watermark("", END)):
        before = watermark
        arrived: list[Element] = []
        match event:
            case Add(_, elements):
                timed = [
                    Element(each.key, (each.number,), each.at * 1000, None) for each in elements
                ]
                arrived = [new for each in timed for new in windowed(each, windowing)]
            case Watermark(_, to):
                watermark = max(watermark, to if to >= END else to * 1000)
            case Clock(by):
                clock += by * 1000
        yield arrived, Now(before, watermark, clock)


def _us(millis: int) -> int:
    return MAX_US if millis >= END else MIN_US if millis <= START else millis * 1000


class _Machine:
    """The pane machine, for all keys."""

    def __init__(self, windowing: Windowing) -> None:
        self._machine = PaneMachine(strategy_of(windowing.transform().windowing))
        self._keys: defaultdict[str, KeyWindows] = defaultdict(dict)

    def happens(self, elements: list[Element], now: Now) -> Iterator[Element]:
        clock_us = now.clock * 1000
        arrival = Instant(_us(now.before), clock_us)
        until = Instant(_us(now.watermark), MAX_US if now.watermark >= END else clock_us)
        for key in {*self._keys, *(each.key for each in elements)}:
            windows = self._keys[key]
            values = [
                WindowedValue(each.numbers, Timestamp(micros=each.at * 1000), (each.window,))
                for each in elements
                if each.key == key
            ]
            for pane in self._machine.add(windows, values, arrival):
                yield self._element(key, pane)
            for pane in self._machine.advance(windows, until):
                yield self._element(key, pane)

    def _element(self, key: str, pane: WindowedValue) -> Element:
        (window,) = pane.windows
        numbers = tuple(sorted(number for value in pane.value for number in value))
        timing = PaneInfoTiming.to_string(pane.pane_info.timing)
        at = pane.timestamp.micros // 1000
        return Element(key, numbers, at, window, (timing, pane.pane_info.index))


@pytest.mark.parametrize("seed", range(PACKS))
def test_like_the_model(seed: int) -> None:
    pack = draw_pack(seed, PACK)
    for windowing in {each for recipe in pack.recipes.values() for each in recipe.windowings}:
        model, machine = Groups(windowing, windowing.trigger), _Machine(windowing)
        for place, (elements, now) in enumerate(_moments(pack.script, windowing)):
            expected = sorted(map(str, model.happens(elements, now)))
            found = sorted(map(str, machine.happens(elements, now)))
            assert found == expected, (windowing, place, pack.script[: place + 1])
