"""What user code raised, charged to the step that it was raised in."""

import contextlib
import re
import traceback
from collections.abc import Iterator
from types import TracebackType

from apache_beam.runners.worker import bundle_processor

from beam_spark_runner.core.errors import BundleFailedError

_STEP_IN_MESSAGE = re.compile(r"\[while running '(.*?)'\]", re.DOTALL)
_MACHINERY = re.compile(r"(^|/)apache_beam/(runners/|transforms/core\.py)|/beam_spark_runner/")


@contextlib.contextmanager
def failures_of(stage_name: str) -> Iterator[None]:
    """Charge what is raised inside; to the stage, if no step is known."""
    try:
        yield
    except Exception as error:
        raise failure_of(error, stage_name) from error


def failure_of(error: BaseException, stage_name: str) -> BundleFailedError:
    """Name the step that raised.

    Beam puts the step into the message of what user code raises; what is
    raised elsewhere (a coder, ``setup``) is charged to the stage.
    """
    if isinstance(error, BundleFailedError):
        return error
    steps = _STEP_IN_MESSAGE.findall(str(error)) or _steps_being_created(error)
    if getattr(error, "_tagged_with_step", False) and error.__context__ is not None:
        error = error.__context__  # Beam raises a copy, whose message has the step in it
    step = steps[0] if steps else stage_name
    text = "".join(traceback.format_exception(type(error), error, _users_frames(error)))
    text = f"{text.rstrip()} [while running '{step}']\n"  # so it ends on Beam's other runners
    failure = BundleFailedError(step, f"{type(error).__name__}: {error}", text)
    # Beam shall not add the steps through which it passes on its way to us.
    failure._tagged_with_step = True  # type: ignore[attr-defined]
    return failure


def charge(error: BaseException, step_name: str) -> None:
    """Raise what names the step, unless the error is charged to one already."""
    if not getattr(error, "_tagged_with_step", False):
        raise failure_of(error, step_name) from error


def _steps_being_created(error: BaseException) -> list[str]:
    """Find the step whose DoFn did not unpickle, in the frames of Beam's factory."""
    creates = bundle_processor.BeamTransformFactory.create_operation.__code__
    return [
        frame.f_locals["transform_proto"].unique_name
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code is creates and "transform_proto" in frame.f_locals
    ][::-1]


def _users_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames of Beam's and ours that led to user code."""
    frames = error.__traceback__
    while frames is not None and _MACHINERY.search(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames or error.__traceback__
