"""The one sentence: what holds a job back."""

from dataclasses import replace

import pytest

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.observing import job_facts
from beam_spark_runner.observing.epoch_status import (
    Blocked,
    HoldReason,
    StepStatus,
)
from beam_spark_runner.observing.held_back import RULES, held_back
from beam_spark_runner.observing.job_facts import JobFacts, StepFigures
from beam_spark_runner.observing.message_lines import ERROR, message_line
from beam_spark_runner.observing.segment_times import SegmentTime
from beam_spark_runner.observing.sentence import Tone
from tests.unit.observing.seen_jobs import (
    EPOCHS,
    NOW_S,
    NOW_US,
    epoch,
    facts,
    step,
    streaming,
    warned,
)


@pytest.mark.parametrize(
    ("seen", "tone", "text"),
    [
        pytest.param(
            facts(state="FAILED", error="Write/Do: ValueError: no <b>\n\nTraceback"),
            Tone.BAD,
            "It has failed in Write/Do: ValueError: no <b>",
            id="a step has failed",
        ),
        pytest.param(
            facts(state="FAILED", error="Spark is gone"),
            Tone.BAD,
            "It has failed: Spark is gone",
            id="something else has failed",
        ),
        pytest.param(
            facts(state="FAILED", error="Write/Do: \n\nno disk\nTraceback"),
            Tone.BAD,
            "It has failed in Write/Do: no disk",
            id="a message of a step that begins with line breaks",
        ),
        pytest.param(
            facts(state="FAILED", error="\n  \nno disk"),
            Tone.BAD,
            "It has failed: no disk",
            id="a message that begins with line breaks",
        ),
        pytest.param(
            facts(state="FAILED", error=""),
            Tone.BAD,
            "It has failed: the reason was not recorded",
            id="a failure without a reason",
        ),
        pytest.param(
            facts(state="DONE", read=1_200),
            Tone.GOOD,
            "It is done after 10 s; its sources have emitted 1,200 elements.",
            id="done",
        ),
        pytest.param(
            facts(state="CANCELLED"), Tone.GOOD, "It is cancelled after 10 s.", id="ended"
        ),
        pytest.param(
            facts(state="STOPPED"),
            Tone.HELD,
            "It waits for its turn: as many jobs run as the server allows.",
            id="in the queue",
        ),
        pytest.param(
            facts(state="STARTING"),
            Tone.HELD,
            "It waits for executors: no task has begun for 1 min 30 s.",
            id="no session yet",
        ),
        pytest.param(
            facts(states=(("STARTING", NOW_S - 2),), state="STARTING"),
            Tone.GOOD,
            "It starts.",
            id="a job that has just begun",
        ),
        pytest.param(
            facts(
                is_streaming=False,
                has_tasks=False,
                segment_times=(SegmentTime(segment=0, began_s=NOW_S - 40),),
            ),
            Tone.HELD,
            "It waits for executors: no task has begun for 40 s.",
            id="a segment without tasks",
        ),
        pytest.param(
            facts(
                is_streaming=False,
                has_tasks=None,
                segments=3,
                segment_times=(SegmentTime(segment=1, began_s=NOW_S - 40),),
            ),
            Tone.GOOD,
            "It runs, in segment 2 of 3.",
            id="a segment whose tasks report nothing",
        ),
        pytest.param(
            replace(streaming(), status=None, committed_s=None, has_tasks=True),
            Tone.GOOD,
            "It runs its first epoch.",
            id="before the first commit",
        ),
        pytest.param(
            streaming(
                status=epoch(
                    Sum=step(120, HoldReason.SIDE_INPUT, blocked=Blocked(0, b"", ("Rates",)))
                )
            ),
            Tone.HELD,
            "Sum waits for its side input from Rates, 2 min 0 s behind.",
            id="a side input that is not ready",
        ),
        pytest.param(
            streaming(
                status=epoch(
                    Read_Process=step(200, HoldReason.RESTRICTION, restrictions=2, backlog=70.0),
                    Sum=step(260, HoldReason.WINDOW, input_us=NOW_US - 200_000_000),
                )
            ),
            Tone.HELD,
            "Read/Process holds the watermark 3 min 20 s behind, by its source (2 restrictions, "
            "backlog 70).",
            id="the source holds, not the window that waits for it",
        ),
        pytest.param(
            streaming(status=epoch(Sum=step(90, HoldReason.DUE_TIMER))),
            Tone.HELD,
            "Sum holds the watermark 1 min 30 s behind, by windows or timers that are due, which "
            "each epoch leaves to the next one.",
            id="due timers",
        ),
        pytest.param(
            streaming(status=epoch(Sum=step(2, left=1_500))),
            Tone.HELD,
            "Sum waits for the state store: 1,500 elements and timers are left for the next epoch.",
            id="reads of a state store",
        ),
        pytest.param(
            streaming(status=epoch(Sum=step(2)), epochs=EPOCHS),
            Tone.HELD,
            "Epochs take 4.0 s, which should take 1.0 s: 75% of it is tasks, in Sum.",
            id="slow epochs",
        ),
        pytest.param(
            streaming(committed_s=NOW_S - 70, messages=warned("the folder cannot be written")),
            Tone.HELD,
            "No epoch has been committed for 1 min 10 s: the folder cannot be written",
            id="a checkpoint folder that is gone",
        ),
        pytest.param(
            streaming(status=epoch(Sum=step(2)), messages=warned("Sum: a group has 1 GB")),
            Tone.HELD,
            "Sum: a group has 1 GB",
            id="the latest warning",
        ),
        pytest.param(
            streaming(status=epoch(Sum=step(2)), messages=warned("old", ago_s=9_000)),
            Tone.GOOD,
            "It keeps up: the watermark is 2 s behind.",
            id="an old warning",
        ),
        pytest.param(
            facts(
                is_streaming=False,
                busy_cores=1.8,
                segments=2,
                segment_times=(SegmentTime(segment=0, began_s=NOW_S),),
                figures={"Sum": StepFigures(busy_share=0.82), "Write/Do": StepFigures()},
            ),
            Tone.BUSY,
            "Sum takes 82% of the time in which steps work, in segment 1 of 2.",
            id="a slow step",
        ),
        pytest.param(
            streaming(
                status=epoch(Sum=StepStatus(input_us=0, output_us=MIN_US)),
                busy_cores=0.9,
                figures={"Sum": StepFigures(busy_share=1.0)},
            ),
            Tone.BUSY,
            "Sum takes 100% of the time in which steps work.",
            id="a stream without watermarks that works all the time",
        ),
        pytest.param(
            streaming(
                status=epoch(Sum=step(2)),
                busy_cores=0.9,
                figures={"Sum": StepFigures(busy_share=1.0)},
            ),
            Tone.GOOD,
            "It keeps up: the watermark is 2 s behind.",
            id="a stream that works all the time, and is not late",
        ),
        pytest.param(
            streaming(status=epoch(Sum=step(2)), figures={"Sum": StepFigures(busy_share=1.0)}),
            Tone.GOOD,
            "It keeps up: the watermark is 2 s behind.",
            id="a step that works little, but no other one works",
        ),
        pytest.param(
            streaming(state="DRAINING", status=epoch(Sum=StepStatus(input_us=0, output_us=MIN_US))),
            Tone.GOOD,
            "It drains.",
            id="draining, without a watermark",
        ),
        pytest.param(facts(is_streaming=None), Tone.GOOD, "It runs.", id="nothing is known"),
    ],
)
def test_the_first_rule_that_applies_is_the_sentence(seen: JobFacts, tone: Tone, text: str) -> None:
    found = held_back(seen)
    assert (found.text, found.tone) == (text, tone)
    assert found.remedy or tone is not Tone.BAD


def test_each_rule_has_a_case_in_which_it_does_not_apply() -> None:
    assert [rule(JobFacts(job_id="1")) for rule in RULES] == [None] * len(RULES)


def test_a_failing_composite_is_found_by_one_of_its_steps() -> None:
    found = held_back(facts(state="FAILED", error="Write: no disk"))
    assert (found.step, found.text) == ("Write/Do", "It has failed in Write: no disk")


def test_the_states_are_those_of_beam() -> None:
    from apache_beam.runners.runner import PipelineState

    names = [job_facts.QUEUED, job_facts.STARTING, job_facts.RUNNING, job_facts.DRAINING]
    for name in [*names, *job_facts.ENDED]:
        assert getattr(PipelineState, name) == name


def test_an_error_that_begins_with_a_line_break_has_its_first_words_on_the_line() -> None:
    assert message_line("", ERROR, "\nno disk\nTraceback").text == "no disk"


def test_an_error_is_no_warning() -> None:
    lines = (message_line("1970-01-01T02:46:39Z", ERROR, "Sum: bad"),)
    assert held_back(streaming(messages=lines)).tone is Tone.GOOD
