"""Steps that show what they get: to the outside world, and in which order."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import StrUtf8Coder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import TimestampedValue


def timed(*times: int, key: str = "k") -> list[TimestampedValue]:
    """Return pairs of a key and a number, which is also the second of its timestamp."""
    return [TimestampedValue((key, time), time) for time in times]


class Sends(beam.DoFn):  # type: ignore[misc]
    """Writes each element to a file of the outside world; fails once, after some."""

    def __init__(self, folder: Path, fails_at: int) -> None:
        self._folder, self._fails_at = str(folder), fails_at

    def process(self, element: Any) -> Iterator[Any]:
        with Path(self._folder, "sent").open("a") as file:
            print(element, file=file)
        has_failed = Path(self._folder, "failed")
        if element[1] == self._fails_at and not has_failed.exists():
            has_failed.touch()
            raise RuntimeError("stopped")
        yield element


def sent(folder: Path) -> list[str]:
    return (folder / "sent").read_text().splitlines()


class Story(beam.DoFn):  # type: ignore[misc]
    """Tells what came so far: elements, and a timer half a second after each."""

    SO_FAR = BagStateSpec("so far", StrUtf8Coder())
    SOON = TimerSpec("soon", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        time: Any = beam.DoFn.TimestampParam,
        so_far: Any = beam.DoFn.StateParam(SO_FAR),
        soon: Any = beam.DoFn.TimerParam(SOON),
    ) -> Iterator[tuple[str, str]]:
        so_far.add(str(pair[1]))
        soon.set(time + 0.5, dynamic_timer_tag=str(pair[1]))
        yield pair[0], " ".join(so_far.read())

    @on_timer(SOON)  # type: ignore[untyped-decorator]
    def fire(
        self,
        tag: Any = beam.DoFn.DynamicTimerTagParam,
        so_far: Any = beam.DoFn.StateParam(SO_FAR),
    ) -> None:
        so_far.add(f"{tag}.5")
