"""The line that says how far a batch pipeline is."""

import pytest

from beam_spark_runner.graph import passes
from beam_spark_runner.observing.batch_line import BatchLine, Counts
from beam_spark_runner.plan.build import build
from tests.golden.notation import parse

PIPELINE = """
    Start: impulse() -> start
    Read: pardo(start) -> orders @py
    Sum: combine_per_key(orders) -> sums @py accumulator=sums
    Rates: pardo(start) -> rates @py
    Convert: pardo(sums, rates as iterable) -> euros @py
    orders :: kv<bytes,varint>
    sums :: kv<bytes,varint>
"""


def line() -> BatchLine:
    """Return the line of a pipeline with three levels, in two segments or more."""
    return BatchLine(build(passes.run_passes(parse(PIPELINE), passes.BATCH)))


def parts(
    line: BatchLine,
    counts: Counts | None,
    *,
    elements: int = 0,
    deferred: int = 0,
    now_s: float = 0,
) -> list[str]:
    return [*line.parts(counts, elements=elements, deferred=deferred, now_s=now_s)]


def test_before_the_first_spark_job() -> None:
    assert parts(line(), None) == ["starting"]


def test_steps_are_counted_over_all_spark_jobs() -> None:
    shown, segments = line(), build(passes.run_passes(parse(PIPELINE), passes.BATCH)).segments
    said = []
    for segment in segments:
        shown.begin_segment(segment.id, 0.0)
        for done in range(len(segment.levels)):
            counts = Counts(done, len(segment.levels), done, len(segment.levels))
            said.append(parts(shown, counts)[1])
    count = len(said)
    assert [text.rpartition(" (")[2] for text in said] == [
        f"{number} of {count})" for number in range(1, count + 1)
    ]
    assert {"Read", "Sum"} <= {text.partition(" (")[0].partition(" + ")[0] for text in said}


@pytest.mark.parametrize(
    ("counts", "elements", "read"),
    [
        pytest.param(None, 0, [], id="nothing is known"),
        pytest.param(None, 7_000, ["7,000 read"], id="what tasks have reported"),
        pytest.param(
            Counts(0, 2, 1, 4, 300, 400), 7_000, ["300 of 400 read"], id="an exchange is read"
        ),
        pytest.param(Counts(0, 2, 1, 4, 500, 400), 0, [], id="counts that do not fit"),
    ],
)
def test_the_line_says_how_much_was_read(
    counts: Counts | None, elements: int, read: list[str]
) -> None:
    shown = line()
    shown.begin_segment(next(iter(shown._first)), 0.0)
    assert parts(shown, counts, elements=elements)[2:] == read


def test_the_line_says_how_many_restrictions_are_deferred() -> None:
    shown = line()
    shown.begin_segment(next(iter(shown._first)), 0.0)
    assert parts(shown, None, deferred=1_234)[2:] == ["1,234 deferred"]


def test_the_rest_is_estimated_once_there_is_something_to_estimate_from() -> None:
    shown = line()
    last = max(shown._first, key=lambda each: shown._first[each])
    shown.begin_segment(next(iter(shown._first)), 100.0)
    assert "left" not in parts(shown, None, now_s=130.0)[-1], "nothing is done"
    shown.begin_segment(last, 130.0)
    assert "left" not in parts(shown, None, now_s=109.0)[-1], "too early"
    assert parts(shown, None, now_s=130.0)[-1].startswith("about 0:")


def test_more_tasks_make_it_no_less() -> None:
    shown = line()
    shown.begin_segment(next(iter(shown._first)), 0.0)
    before = parts(shown, Counts(1, 2, 3, 4))[0]
    assert parts(shown, Counts(1, 3, 3, 400))[0] == before
    assert parts(shown, None)[0] == before


def test_the_spark_job_that_collects_what_another_has_materialised() -> None:
    grouped = """
        Start: impulse() -> start
        Read: pardo(start) -> orders @py
        Sum: combine_per_key(orders) -> sums @py accumulator=sums
        orders :: kv<bytes,varint>
        sums :: kv<bytes,varint>
        """
    plan = build(passes.run_passes(parse(grouped), passes.BATCH))
    (segment,) = plan.segments
    shown = BatchLine(plan)
    shown.begin_segment(segment.id, 0.0)
    before = parts(shown, Counts(1, 2, 3, 4))
    assert before[1] == "Sum (2 of 2)"
    assert parts(shown, Counts(0, 1, 0, 1)) == before
