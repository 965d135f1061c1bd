"""Parses the text as which an SDK harness sends an exception of user code."""

import re
from collections.abc import Collection

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.core.raised import Raised
from beam_spark_runner.harness.failures import OUR_OWN

_STEP_IN_MESSAGE = re.compile(r"\[while running '(.*?)'\]", re.DOTALL)
_BEGINS = re.compile(
    r"\n\n(?=Traceback \(most recent call last\):\n|  \+ Exception Group Traceback )"
)
_OF_PYTHON = "Traceback (most recent call last):\n"
_CLASS_AND_MESSAGE = re.compile(r"(?P<name>[^\W\d][\w.]*)(: (?P<message>.*))?", re.DOTALL)
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n"


def user_failure(text: str, stage_name: str, steps: Collection[str]) -> BundleFailedError:
    """Assign an error text to the step that it names, or else to the stage.

    The Python SDK raises a copy of the exception, with the step in its message; the text of the
    original, with the user's frames, precedes it. In a harness that has this package, steps that
    process chunks raise a BundleFailedError, whose text names the step.

    Args:
        text: The ``error`` of an InstructionResponse: a traceback.
        stage_name: The name of the stage, if the text names no step.
        steps: The full names of the stage's steps.
    """
    *_, ours = text.rpartition(OUR_OWN)
    if len(ours) < len(text):
        for step in sorted(steps, key=len, reverse=True):
            if ours.startswith(f"{step}: "):
                cause, *rest = _BEGINS.split(ours.removeprefix(f"{step}: "), maxsplit=1)
                report = "".join(rest)
                before_ending, *_ = report.rpartition(f" [while running '{step}']")
                return BundleFailedError(step, cause, report, _raised_in(before_ending or report))
    names = _STEP_IN_MESSAGE.findall(text)
    step = names[0] if names else stage_name
    ending = f" [while running '{step}']"  # as on Beam's other runners
    original, _, copy = text.rpartition(_CONTEXT)  # the last, as the original may have a chain
    if not original or not _STEP_IN_MESSAGE.search(copy):
        original = text
    original = original.rstrip().removesuffix(ending)
    return BundleFailedError(
        step, _message(original), f"{original}{ending}\n", _raised_in(original)
    )


def _raised_in(text: str) -> Raised | None:
    """Return the class that a traceback of Python names: all that is known of the exception."""
    match = _CLASS_AND_MESSAGE.fullmatch(_message(text))
    if not text.startswith(_OF_PYTHON) or match is None:
        return None
    return Raised(classes=(match["name"],), attributes=repr({"args": (match["message"] or "",)}))


def _message(traceback_text: str) -> str:
    """Return what follows the last frame of a traceback."""
    lines = traceback_text.rstrip().splitlines()
    last_frame = max(
        (number for number, line in enumerate(lines) if line.startswith('  File "')), default=-1
    )
    rest = lines[last_frame + 1 :]
    while len(rest) > 1 and rest[0].startswith("    "):
        rest = rest[1:]
    return "\n".join(rest)
