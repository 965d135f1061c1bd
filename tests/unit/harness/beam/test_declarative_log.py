"""Elements that exceed what is in memory come back from the file in their order."""

import random
from typing import Any

from apache_beam.coders import StrUtf8Coder, TupleCoder, VarIntCoder, WindowedValueCoder
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.declarative_items import Advance, Element
from beam_spark_runner.harness.beam.declarative_log import ElementLog
from beam_spark_runner.semantics.timers import Instant

CODER = WindowedValueCoder(TupleCoder([StrUtf8Coder(), VarIntCoder()]), IntervalWindowCoder())


def test_items_of_several_keys() -> None:
    draw = random.Random(1)
    log = ElementLog(CODER)
    given: dict[bytes, list[Any]] = {b"a": [], b"b": [], b"c": []}
    found: dict[bytes, list[Any]] = {key: [] for key in given}

    def take(key: bytes) -> None:
        if len(found[key]) < len(given[key]):
            taken = [*log.take(key)]
            assert taken
            found[key] += taken

    for number in range(3_000):
        key = draw.choice([*given])
        if draw.random() < 0.02:
            item: Any = Advance(Instant(number, number), ends=draw.random() < 0.5)
        else:
            value = (key.decode(), number)
            window = IntervalWindow(number, number + 1)
            item = Element(value, WindowedValue(value, number, (window,)))
        size = 0 if isinstance(item, Advance) else number
        log.append(key, item, size)
        given[key].append((item, size))
        if draw.random() < 0.01:
            take(draw.choice([*given]))
    for key in given:
        while len(found[key]) < len(given[key]):
            take(key)
    assert found == given
