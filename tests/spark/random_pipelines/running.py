"""Runs random pipelines and compares what runners give.

Many are packed into one run: a Spark job costs more than their few elements.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import GlobalWindows

from tests.spark.main_module import classes_of_main
from tests.spark.random_pipelines.kinds import KINDS
from tests.spark.random_pipelines.recipes import Recipe, Step

_MAX_LINES = 12  # of what differs
SMALL_MEMORY = (
    "--group_memory_bytes=100",
    "--spark_conf=spark.sql.execution.arrow.maxRecordsPerBatch=8",
)
"""Groups of more than two values are streamed from the exchange, where a batch of rows ends, and
written to disk; there are several such groups in one task."""


class _AsText(beam.DoFn):  # type: ignore[misc]
    """An element with all that Beam keeps next to it."""

    def __init__(self, label: str) -> None:
        self._label = label

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        pane: Any = beam.DoFn.PaneInfoParam,
    ) -> Iterator[str]:
        if isinstance(element, tuple) and not isinstance(element[1], int):
            element = element[0], sorted(element[1])  # groups come in any order
        millis = int(timestamp.micros / 1000)  # what Beam's coder keeps
        yield f"{self._label}: {element} at {millis} in {window}, pane {pane.index} {pane.timing}"


def apply(p: beam.Pipeline, step: Step, made: list[Any], label: str, *, is_beams: bool) -> Any:
    """Apply a step to what the earlier ones have made."""
    kind = KINDS[step.kind]
    make = kind.on_beams if is_beams and kind.on_beams else kind.make
    sources = [made[number] for number in step.inputs]
    name = f"{label} {step.kind}"
    if not sources:
        return p | name >> make(*step.args)
    if kind.joins:
        return tuple(sources) | name >> make(*step.args)
    return sources[0] | name >> make(*step.args, *sources[1:])


def elements_of(runner: Any, pack: Mapping[int, Recipe], *flags: str) -> Counter[str]:
    """Run all of a pack in one pipeline.

    Args:
        runner: to run it on.
        pack: recipes by their numbers, which name their steps.
        flags: pipeline options.

    Returns:
        The elements of the collections to compare, as text. They come through a sink of
        Beam's, so that tasks which run twice do not double them.
    """
    is_beams = isinstance(runner, FnApiRunner)
    with tempfile.TemporaryDirectory() as folder, classes_of_main():
        pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(list(flags)))
        lines = []
        for number, recipe in pack.items():
            made: list[Any] = []
            read = {source for step in recipe for source in step.inputs}
            for place, step in enumerate(recipe):
                label = f"{number}.{place}"
                made.append(apply(pipeline, step, made, label, is_beams=is_beams))
                if step.is_shown or place not in read:
                    text = made[-1] | f"{label} as text" >> beam.ParDo(_AsText(label))
                    lines.append(text | f"{label} to write" >> beam.WindowInto(GlobalWindows()))
        lines | beam.Flatten() | beam.io.WriteToText(f"{folder}/all")
        result = pipeline.run()
        assert result.wait_until_finish() == "DONE"
        return Counter(
            line for file in Path(folder).glob("all*") for line in file.read_text().splitlines()
        )


def by_beams_runner(pack: Mapping[int, Recipe]) -> tuple[Counter[str], dict[int, Recipe]]:
    """Run a pack on Beam's FnApiRunner, as far as that can.

    It gives up on some pipelines: bundles wait for a watermark that never comes.

    Returns:
        The elements, and those of the pack that were run.
    """
    found: Counter[str] = Counter()
    ran: dict[int, Recipe] = {}
    pending = [dict(pack)]
    while pending:
        some = pending.pop()
        try:
            found += elements_of(FnApiRunner(), some)
        except AssertionError as error:
            if "bundles did not execute" not in str(error):
                raise
            half = list(some)[len(some) // 2 :]
            if len(some) > 1:
                pending.append({number: some.pop(number) for number in half})
                pending.append(some)
        else:
            ran |= some
    return found, ran


def by_our_runner(runner: Any, pack: Mapping[int, Recipe], *flags: str) -> Counter[str]:
    """Run a pack that Beam's runner has run.

    Raises:
        AssertionError: it fails here; shows the recipe with the step that the error names.
    """
    try:
        return elements_of(runner, pack, *flags)
    except Exception as error:
        shown = ""
        if named := re.search(r"(?<![\d.])(\d+)\.(\d+) [a-z]", str(error)):
            number, place = map(int, named.groups())
            if number in pack:
                shown = f"{_steps(pack[number], place)}\n"
        raise AssertionError(f"{' '.join(flags)}\n{shown}only here: {error}") from error


def check_same(ours: Counter[str], theirs: Counter[str], pack: Mapping[int, Recipe]) -> None:
    """Fail with each recipe that differs, up to its first collection that does.

    Hypothesis need not shrink a pack: what a collection is made of stands before it.
    """
    only_here, only_there = ours - theirs, theirs - ours
    first: dict[int, int] = {}  # collection by recipe
    for line in only_here + only_there:
        number, place = map(int, line.partition(":")[0].split("."))
        first[number] = min(place, first.get(number, place))
    if first:
        raise AssertionError(
            "\n".join(
                f"{_steps(pack[number], place)}\n"
                f"only here: {_of(f'{number}.{place}:', only_here)}\n"
                f"only there: {_of(f'{number}.{place}:', only_there)}"
                for number, place in sorted(first.items())
            )
        )


def _steps(recipe: Recipe, last: int) -> str:
    return "\n".join(f"  {place}: {step}" for place, step in enumerate(recipe[: last + 1]))


def _of(label: str, lines: Counter[str]) -> str:
    some = sorted(line for line in lines.elements() if line.startswith(label))
    return "\n    ".join([f"{len(some)} elements", *some[:_MAX_LINES]])
