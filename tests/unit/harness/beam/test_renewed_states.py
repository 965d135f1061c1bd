"""A key begins with the state objects of the previous key, which are empty."""

import random
from collections.abc import Iterator
from typing import Any, ClassVar

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    ReadModifyWriteStateSpec,
    SetStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import FixedWindows, IntervalWindow

from beam_spark_runner.harness.beam import keyed


class Gives(beam.DoFn):  # type: ignore[misc]
    """Gives what it has seen of each key and window, and the identities of its state objects."""

    VALUE = ReadModifyWriteStateSpec("value", VarIntCoder())
    BAG = BagStateSpec("bag", VarIntCoder())
    SUM = CombiningValueStateSpec("sum", sum)
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: Any,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        value: Any = beam.DoFn.StateParam(VALUE),
        bag: Any = beam.DoFn.StateParam(BAG),
        total: Any = beam.DoFn.StateParam(SUM),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> Iterator[Any]:
        assert key == pair[0]
        before = value.read(), list(bag.read()), total.read()
        value.write(pair[1])
        if pair[1] % 5 == 0:
            bag.clear()
        bag.add(pair[1])
        total.add(pair[1])
        end.set(window.max_timestamp())
        yield "element", *pair, *before, {id(value), id(bag), id(total)}

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        value: Any = beam.DoFn.StateParam(VALUE),
        bag: Any = beam.DoFn.StateParam(BAG),
        total: Any = beam.DoFn.StateParam(SUM),
    ) -> Iterator[Any]:
        yield "end", key, window, value.read(), list(bag.read()), total.read()
        bag.add(1000)  # after which nothing reads it


def _expected(key: int, window: Any, values: list[int]) -> list[Any]:
    out: list[Any] = []
    value, bag, total = None, list[int](), 0
    for each in values:
        out.append(("element", key, each, value, [*bag], total))
        value, bag, total = each, [*([] if each % 5 == 0 else bag), each], total + each
    return [*out, ("end", key, window, value, bag, total)]


@pytest.mark.parametrize("max_calls", [1, 4, 1000])
@pytest.mark.parametrize("windows", [1, 2, 5])
def test_each_key_begins_with_empty_state(
    running: Any, monkeypatch: pytest.MonkeyPatch, max_calls: int, windows: int
) -> None:
    monkeypatch.setattr(keyed, "MAX_CALLS", max_calls)
    chance = random.Random(max_calls * windows)
    known = [IntervalWindow(start, start + 1) for start in range(windows)]
    stage = running(Gives(), FixedWindows(1))
    for bundle in range(2):
        stage.taken.elements.clear()
        expected: list[Any] = []
        for key in range(30):
            for window in sorted(chance.sample(known, chance.randint(1, windows))):
                values = [chance.randint(0, 9) for _ in range(chance.randint(1, 6))]
                if chance.random() < 0.2:  # an equal one
                    window = IntervalWindow(window.start, window.end)
                for value in values:
                    stage.push(key, [value], (window,), float(window.start))
                expected += _expected(key, window, values)
            stage.bundle.advance_key()
        stage.bundle.finish()
        found = [each[:6] for each in stage.out]
        assert sorted(map(repr, found)) == sorted(map(repr, expected))
        if not bundle:
            stage.bundle = stage.start()


def test_keys_in_one_window_have_the_same_objects(running: Any) -> None:
    stage = running(Gives())
    for key in range(5):
        stage.key(key, [1, 2])
    stage.bundle.finish()
    seen = [each[-1] for each in stage.out if each[0] == "element"]
    assert all(ids == seen[0] for ids in seen)


def test_a_set_state_is_made_for_each_key(running: Any) -> None:
    class Sets(beam.DoFn):  # type: ignore[misc]
        SET = SetStateSpec("set", VarIntCoder())
        BAG = BagStateSpec("bag", VarIntCoder())

        def process(
            self,
            pair: Any,
            seen: Any = beam.DoFn.StateParam(SET),
            bag: Any = beam.DoFn.StateParam(BAG),
        ) -> Iterator[Any]:
            yield pair[0], sorted(seen.read()), sorted(bag.read())
            seen.add(pair[1])
            bag.add(pair[1])

    stage = running(Sets())
    for key in range(3):
        stage.key(key, [key, key])
    stage.bundle.finish()
    assert stage.out == [out for n in range(3) for out in ((n, [], []), (n, [n], [n]))]


class Reads(beam.DoFn):  # type: ignore[misc]
    BAG = BagStateSpec("bag", VarIntCoder())
    read: ClassVar[list[Any]] = []

    def process(self, pair: Any, bag: Any = beam.DoFn.StateParam(BAG)) -> None:
        bag.add(pair[1])
        Reads.read.append(bag.read())


def test_what_was_read_of_a_key_stays_as_it_was(running: Any) -> None:
    Reads.read.clear()
    stage = running(Reads())
    for key in range(3):
        stage.key(key, [key])
    stage.bundle.finish()
    assert [list(values) for values in Reads.read] == [[0], [1], [2]]
