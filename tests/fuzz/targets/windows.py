"""What SDK harnesses answer when they are asked to map or to merge windows."""

import random
from abc import abstractmethod
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from apache_beam.coders.coders import TimestampPrefixingOpaqueWindowCoder
from apache_beam.transforms.window import GlobalWindows, WindowFn

from beam_spark_runner.core import urns
from beam_spark_runner.engine.stages import side_windows, window_merger
from beam_spark_runner.harness.beam.plugin.block_edges import reader_of
from beam_spark_runner.harness.grouping.sdk_window_fn import SdkWindowFn
from beam_spark_runner.portable.bounded import BoundedReader
from beam_spark_runner.portable.window_merging import decoded_answer
from tests.fuzz import coded
from tests.fuzz.targets.base import Messages, Target
from tests.fuzz.targets.stages import Stage, stages_of


class _Answers(Target):
    """The content of elements that a stage of the runner's own making has sent.

    A case begins with the number of the stage, and how many windows were asked about.
    """

    share = 1.5
    _urn = ""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = [
            each
            for each in stages
            if any(one.spec.urn == self._urn for one in each.descriptor.transforms.values())
        ]
        self._real = [list(_values(each)) for each in self._stages]
        self._asked = [[self._windows_in(each) for each in answers] for answers in self._real]

    def case(self, random_: random.Random) -> bytes:
        number = random_.randrange(len(self._stages))
        answers = self._real[number]
        place = random_.randrange(len(answers))
        return bytes([number, place]) + coded.mutated(answers[place], random_, answers)

    def run(self, case: bytes) -> object:
        if len(case) < 2 or case[0] >= len(self._stages) or case[1] >= len(self._real[case[0]]):
            return None
        stage = self._stages[case[0]]
        program = SimpleNamespace(name="step", description=stage.description, stage=1)
        answer = GlobalWindows.windowed_value(case[2:])
        vars(self._module)["run_helper"] = lambda *_: ([answer], ())
        return self._ask(program, self._asked[case[0]][case[1]])

    _module: Any

    @abstractmethod
    def _windows_in(self, answer: bytes) -> Sequence[bytes]:
        """Return the windows that were asked about."""

    @abstractmethod
    def _ask(self, program: Any, windows: Sequence[bytes]) -> object:
        """Have the runner ask."""


class Mapping(_Answers):
    """The window of a side input for one of the main input."""

    name = "window-mapping"
    _urn = urns.MAP_WINDOWS
    _module = side_windows

    def _windows_in(self, answer: bytes) -> Sequence[bytes]:
        return [BoundedReader(answer).prefixed()]

    def _ask(self, program: Any, windows: Sequence[bytes]) -> object:
        return side_windows._answers(None, program, windows)  # type: ignore[arg-type]


class Merging(_Answers):
    """The windows that windows of a key have become."""

    name = "window-merging"
    _urn = urns.MERGE_WINDOWS
    _module = window_merger

    def _windows_in(self, answer: bytes) -> Sequence[bytes]:
        parts = [part for _, each in decoded_answer(answer) for part in each]
        return [*parts, b"\x80" + bytes(7) + b"\1z"]

    def _ask(self, program: Any, windows: Sequence[bytes]) -> object:
        def merge(asked: Sequence[bytes]) -> Sequence[tuple[bytes, Sequence[bytes]]]:
            return window_merger.merge_windows(None, program, asked)  # type: ignore[arg-type]

        coder = TimestampPrefixingOpaqueWindowCoder()
        context = _Context([coder.decode(each) for each in windows])
        SdkWindowFn(coder, merge).merge(context)
        return None


class _Context(WindowFn.MergeContext):  # type: ignore[misc]
    def merge(self, to_be_merged: Any, merge_result: Any) -> None:
        merge_result.max_timestamp()


def _values(stage: Stage) -> Any:
    for sink in stage.sinks:
        reader = reader_of(stage.descriptor, sink, stage.coder(sink))
        for block in stage.data(sink):
            for values, _ in reader.read(block):
                yield from values


def targets(messages: Messages) -> list[Target]:
    """Return the targets of this module."""
    stages = stages_of(messages)
    return [Mapping(stages), Merging(stages)]
