"""The sentence about a job: what holds it back, and what helps."""

from dataclasses import dataclass
from enum import Enum


class Tone(Enum):
    """How a sentence is meant."""

    GOOD = "good"  # nothing to do
    BUSY = "busy"  # it works, and this is where its time goes
    HELD = "held"  # something holds it back
    BAD = "bad"  # it has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """What holds a job back.

    Attributes:
        text: The sentence.
        tone: How it is meant.
        remedy: What to do. "": nothing.
        step: The full name of the step that the sentence is about. "": none.
    """

    text: str
    tone: Tone
    remedy: str = ""
    step: str = ""
