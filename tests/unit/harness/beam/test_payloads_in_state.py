"""However payloads are nested in what user state keeps, no more than the limit is in memory."""

import random
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    OrderedListStateSpec,
    SetStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.harness.beam import keyed

LIMIT = 10_000
ANY = FastPrimitivesCoder()


def nested(chance: random.Random, depth: int, *, is_hashable: bool) -> Any:
    """Return a value with payloads of some thousand bytes, within other values."""
    size = chance.randint(0, 3_000)
    if depth == 0:
        return chance.choice([bytes(size), "x" * size, size])
    parts = [
        nested(chance, depth - 1, is_hashable=is_hashable) for _ in range(chance.randint(0, 2))
    ]
    if is_hashable or chance.random() < 0.3:
        return ("name", *parts)
    return chance.choice([parts, {str(place): each for place, each in enumerate(parts)}])


def keeps(kind: str, values: list[Any]) -> beam.DoFn:
    """Return a DoFn that adds the value of a number to one state, and counts them at the end."""
    spec: Any = {
        "a bag": BagStateSpec,
        "a set": SetStateSpec,
        "an ordered list": OrderedListStateSpec,
    }[kind]("kept", ANY)
    has_times = kind == "an ordered list"

    class Keeps(beam.DoFn):  # type: ignore[misc]
        END = TimerSpec("end", TimeDomain.WATERMARK)

        def process(
            self,
            pair: tuple[int, int],
            window: Any = beam.DoFn.WindowParam,
            kept: Any = beam.DoFn.StateParam(spec),
            end: Any = beam.DoFn.TimerParam(END),
        ) -> None:
            value = values[pair[1]]
            kept.add((Timestamp(pair[1]), value) if has_times else value)
            end.set(window.end)

        @on_timer(END)  # type: ignore[untyped-decorator]
        def at_end(self, kept: Any = beam.DoFn.StateParam(spec)) -> Iterator[list[str]]:
            yield sorted(repr(each[1] if has_times else each) for each in kept.read())

    return Keeps()


@pytest.mark.parametrize("kind", ["a bag", "a set", "an ordered list"])
@pytest.mark.parametrize("seed", range(5))
def test_what_is_added_is_handed_on_in_time(
    running: Any, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    monkeypatch.setattr(keyed, "MAX_BYTES", LIMIT)
    chance = random.Random(seed)
    values = [
        (number, nested(chance, chance.randint(0, 3), is_hashable=kind == "a set"))
        for number in range(60)
    ]
    stage = running(keeps(kind, values))
    waiting: list[int] = []  # sizes of what was not written yet
    write = stage.operation.states.write

    def noted() -> None:
        waiting.clear()
        write()

    monkeypatch.setattr(stage.operation.states, "write", noted)
    for number, value in enumerate(values):
        waiting.append(len(ANY.encode(value)))
        stage.push(1, [number])
        assert sum(waiting) <= LIMIT
    stage.bundle.advance_key()
    stage.bundle.finish()
    assert stage.out == [sorted(map(repr, values))]
