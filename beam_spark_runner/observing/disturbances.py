"""Rules for the sentence about a job that something outside of it disturbs.

It survives each of these, so that the sentence says what happened, and what happens now.
"""

import re

from beam_spark_runner.observing import job_facts
from beam_spark_runner.observing.job_facts import JobFacts
from beam_spark_runner.observing.message_lines import INFO
from beam_spark_runner.observing.sentence import Sentence, Tone
from beam_spark_runner.observing.stream_line import duration_text
from beam_spark_runner.observing.troubles import Trouble, TroubleKind

_NEW_S = 120.0
"""For this time, something that is over is still what people ask about."""
_RETRIES = re.compile(r"; trying again in \d+ s\Z")
_CONTINUES = re.compile(r"\Astart (?P<start>\d+) of the job continues after (?P<after>.+)\Z")


def lacks_storage(facts: JobFacts) -> Sentence | None:
    """Return the sentence about a job that waits for the storage to which it commits."""
    trouble = _trouble(facts, TroubleKind.STORAGE)
    if trouble is None:
        return None
    for_s = duration_text(max(0, int(facts.now_s - trouble.since_s)))
    return Sentence(
        text=f"Its storage has not worked for {for_s}: {_RETRIES.sub('', trouble.text)}.",
        tone=Tone.HELD,
        remedy="Nothing is lost: the job tries again for two minutes, and then fails. Check "
        "whether this folder or store can be reached, and is not full.",
    )


def has_lost_executors(facts: JobFacts) -> Sentence | None:
    """Return the sentence about a job whose executors have died, or whose Spark jobs run again."""
    repeated = _trouble(facts, TroubleKind.REPEATED)
    recent = [each for each in facts.lost_executors if facts.now_s - each.at_s <= _NEW_S]
    if recent:
        last = max(recent, key=lambda each: each.at_s)
        ago = duration_text(max(0, int(facts.now_s - last.at_s)))
        which = f"Executor {last.executor} was"
        if len(recent) > 1:
            which = f"{len(recent)} executors were"
        reason = f" ({last.reason})" if last.reason else ""
        return Sentence(
            text=f"{which} lost {ago} ago{reason}: what ran there runs again.",
            tone=Tone.HELD,
            remedy="No element is lost. If it happens often, look at the log of this executor: "
            "exit code 137 often means that it had too little memory "
            "(spark.executor.memoryOverhead).",
        )
    if repeated is None:
        return None
    return Sentence(
        text=repeated.text,
        tone=Tone.HELD,
        remedy="No element is lost. If it happens often, look at the Spark UI: machines may be "
        "lost, or have too little memory.",
    )


def was_restarted(facts: JobFacts) -> Sentence | None:
    """Return the sentence about a job that another server, or another Spark, has continued."""
    starts = [at_s for state, at_s in facts.states if state == job_facts.STARTING]
    if len(starts) < 2 or facts.now_s - starts[-1] > _NEW_S:
        return None
    ago = duration_text(max(0, int(facts.now_s - starts[-1])))
    after = ""
    for line in reversed(facts.messages):
        if line.level == INFO and line.is_of_runner and (found := _CONTINUES.match(line.text)):
            after = f", after {found['after']}"
            break
    return Sentence(
        text=f"Its job server, or Spark, had ended: the job was started again {ago} ago, and "
        f"continues{after}.",
        tone=Tone.HELD,
        remedy="Nothing is to be done for the job. The log of the server says why it was started.",
    )


def _trouble(facts: JobFacts, kind: TroubleKind) -> Trouble | None:
    """Return a trouble that has not ended, and that was noticed lately."""
    for trouble in facts.troubles:
        if trouble.kind is kind and facts.now_s - trouble.at_s <= _NEW_S:
            return trouble
    return None
