"""What steps send, and in which portions."""

from collections.abc import Callable
from typing import Any, NamedTuple

from apache_beam.transforms.window import (
    GlobalWindow,
)
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.values.constants import Kind


def origin(number: int) -> WindowedValue:
    return WindowedValue(None, number, (GlobalWindow(),))


Received = tuple[Any, int]


class Output:
    """What comes downstream of a step, each with the timestamp of its origin.

    ``take`` says what downstream makes of a result: what a coder would, for example.
    """

    def __init__(self, take: Callable[[Any], Any] = lambda result: result) -> None:
        self._take = take
        self.received: list[Received] = []
        self.sizes: list[int] = []  # of what came at once

    def send(
        self, results: list[Any], origins: list[WindowedValue], kind: Kind, *, are_values: bool
    ) -> None:
        assert results
        self.sizes.append(len(results))
        for result, each in zip(results, origins, strict=True):
            self.received.append((self._take(result), int(each.timestamp)))

    def send_one(self, result: Any, origin: WindowedValue) -> None:
        self.send([result], [origin], Kind.OWN, are_values=False)


def all_of(step: Any, values: list[Any], take: Callable[[Any], Any] | None = None) -> list[Any]:
    """Results with the timestamps of their origins, which are the positions of the values."""
    output = Output(take) if take else Output()
    step.run(values, [origin(place) for place in range(len(values))], Kind.OWN, output)
    return output.received


class Row(NamedTuple):
    number: Any


class Announcing(Output):
    """Notes what is said of results that come at once."""

    def __init__(self) -> None:
        super().__init__()
        self.announced: list[tuple[list[Any], bool]] = []

    def send(self, results: Any, origins: Any, kind: Kind, *, are_values: bool) -> None:
        super().send(results, origins, kind, are_values=are_values)
        self.announced.append((results, are_values))


class Sent(Output):
    """Notes the kind of what comes at once, and what comes by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[tuple[list[Any], Kind, bool]] = []
        self.alone: list[Any] = []

    def send(self, results: Any, origins: Any, kind: Kind, *, are_values: bool) -> None:
        self.chunks.append((results, kind, are_values))

    def send_one(self, result: Any, origin: WindowedValue) -> None:
        self.alone.append(result)
