"""What SDK harnesses answer when they are asked to map or to merge windows."""

import random
from collections.abc import Sequence
from typing import Any

from apache_beam.coders.coders import IntervalWindowCoder, TimestampPrefixingOpaqueWindowCoder
from apache_beam.transforms.window import IntervalWindow, WindowFn

from beam_spark_runner.core import urns
from beam_spark_runner.harness.beam.plugin.block_edges import reader_of
from beam_spark_runner.harness.codec.blocks import MalformedBlockError
from beam_spark_runner.harness.grouping.sdk_window_fn import SdkWindowFn
from beam_spark_runner.portable.window_mapping import answer_reader
from beam_spark_runner.portable.window_merging import decoded_answer
from tests.fuzz import coded
from tests.fuzz.targets.base import Messages, Target
from tests.fuzz.targets.stages import Stage, stages_of


class _Answers(Target):
    """The content of elements that a stage of the runner's own making has sent."""

    share = 1.5
    named = (MalformedBlockError,)
    _urn = ""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = [
            each
            for each in stages
            if any(one.spec.urn == self._urn for one in each.descriptor.transforms.values())
        ]
        self._real = [list(_values(each)) for each in self._stages]

    def case(self, random_: random.Random) -> bytes:
        number = random_.randrange(len(self._stages))
        answers = self._real[number]
        return bytes([number]) + coded.mutated(random_.choice(answers), random_, answers)


class Mapping(_Answers):
    """The window of a side input for one of the main input."""

    name = "window-mapping"
    _urn = urns.MAP_WINDOWS

    def run(self, case: bytes) -> object:
        stage = self._stages[case[0] % len(self._stages)]
        return answer_reader(stage.description)(case[1:])


class Merging(_Answers):
    """The windows that windows of a key have become."""

    name = "window-merging"
    _urn = urns.MERGE_WINDOWS

    def run(self, case: bytes) -> object:
        merged = decoded_answer(case[1:])
        parts = [part for _, each in merged for part in each]
        opaque = TimestampPrefixingOpaqueWindowCoder()
        interval = IntervalWindowCoder()
        known = [opaque.decode(each) for each in self._parts if each in parts]
        for coder, windows in (
            (opaque, known),
            (interval, [IntervalWindow(0, 1), IntervalWindow(1, 2)]),
        ):
            SdkWindowFn(coder, lambda _: merged).merge(_Context(windows))
        return None

    @property
    def _parts(self) -> set[bytes]:
        return {
            part
            for answers in self._real
            for answer in answers
            for _, parts in decoded_answer(answer)
            for part in parts
        }


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
