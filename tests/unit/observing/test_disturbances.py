"""The sentence about a job that something outside of it disturbs, or one key."""

import pytest

from beam_spark_runner.observing.epoch_status import (
    HoldReason,
)
from beam_spark_runner.observing.held_back import held_back
from beam_spark_runner.observing.job_facts import JobFacts
from beam_spark_runner.observing.message_lines import INFO, message_line
from beam_spark_runner.observing.segment_times import SegmentTime
from beam_spark_runner.observing.sentence import Tone
from beam_spark_runner.observing.troubles import TroubleKind
from tests.unit.observing.seen_jobs import (
    EPOCHS,
    NOW_S,
    SLOW,
    epoch,
    facts,
    lost,
    skewed,
    step,
    streaming,
    trouble,
)


@pytest.mark.parametrize(
    ("seen", "tone", "text"),
    [
        pytest.param(
            streaming(
                status=epoch(Sum=step(200, HoldReason.RESTRICTION)),
                troubles=(trouble(TroubleKind.STORAGE, "no folder /c; trying again in 4 s"),),
            ),
            Tone.HELD,
            "Its storage has not worked for 40 s: no folder /c.",
            id="storage that is gone, which is why the watermark is held",
        ),
        pytest.param(
            streaming(
                status=epoch(Sum=step(2)),
                troubles=(trouble(TroubleKind.STORAGE, "no folder /c", ago_s=400),),
            ),
            Tone.GOOD,
            "It keeps up: the watermark is 2 s behind.",
            id="storage that was gone",
        ),
        pytest.param(
            facts(
                has_tasks=False,
                segment_times=(SegmentTime(segment=0, began_s=NOW_S - 40),),
                lost_executors=(lost("1", 300, "old"), lost("2", 12, "exit code 137")),
                troubles=(trouble(TroubleKind.REPEATED, "Sum runs again: lost"),),
            ),
            Tone.HELD,
            "Executor 2 was lost 12 s ago (exit code 137): what ran there runs again.",
            id="an executor was lost, and there is no other one",
        ),
        pytest.param(
            facts(lost_executors=(lost("1", 60, "old"), lost("2", 12, "exit code 137"))),
            Tone.HELD,
            "2 executors were lost 12 s ago (exit code 137): what ran there runs again.",
            id="executors were lost",
        ),
        pytest.param(
            facts(troubles=(trouble(TroubleKind.REPEATED, "Sum runs again: lost"),)),
            Tone.HELD,
            "Sum runs again: lost",
            id="a segment runs again",
        ),
        pytest.param(
            facts(
                states=(
                    *(("STARTING", NOW_S - 900), ("RUNNING", NOW_S - 890)),
                    *(("STARTING", NOW_S - 30), ("RUNNING", NOW_S - 25)),
                ),
                is_streaming=False,
                messages=(
                    message_line(
                        "",
                        INFO,
                        "start 2 of the job continues after 3 of 7 Spark jobs",
                    ),
                ),
            ),
            Tone.HELD,
            "Its job server, or Spark, had ended: the job was started again 30 s ago, and "
            "continues, after 3 of 7 Spark jobs.",
            id="a job that another server continues",
        ),
        pytest.param(
            facts(is_streaming=False, segments=1, level_works=(skewed(),), figures=SLOW),
            Tone.HELD,
            "Sum has waited 1 min 10 s for partition 3: 90% of its 4,000 elements have "
            "the key 'a'.",
            id="a key with most of the elements",
        ),
        pytest.param(
            facts(is_streaming=False, level_works=(skewed(is_done=True),)),
            Tone.GOOD,
            "It runs.",
            id="a key that had most of the elements",
        ),
        pytest.param(
            facts(is_streaming=False, level_works=(skewed(rows=40_000),)),
            Tone.GOOD,
            "It runs.",
            id="a key with most of the elements of its partition, which are not many",
        ),
        pytest.param(
            streaming(
                status=epoch(Sum=step(2)),
                epochs=EPOCHS,
                level_works=(skewed(is_done=True),),
            ),
            Tone.HELD,
            "Epochs take 4.0 s, which should take 1.0 s: 75% of it is tasks, in Sum: in partition "
            "3, 90% of its 4,000 elements have the key 'a'.",
            id="slow epochs because of a key",
        ),
    ],
)
def test_what_happens_to_a_job_is_the_sentence(seen: JobFacts, tone: Tone, text: str) -> None:
    found = held_back(seen)
    assert (found.text, found.tone) == (text, tone)
    assert found.remedy or tone is Tone.GOOD
