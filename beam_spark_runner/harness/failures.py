"""Assigns exceptions of user code to the step that has raised them."""

import contextlib
import re
import sys
from collections.abc import Iterator
from types import TracebackType

from beam_spark_runner.core.errors import BundleFailedError, StoredDataError
from beam_spark_runner.core.raised import raised_of
from beam_spark_runner.core.rendering import (
    MAX_TRACEBACK_LENGTH,
    message_of,
    render_error,
    short_text_of,
    texts_in,
)
from beam_spark_runner.harness.main_classes import MainModule

OUR_OWN = f"{BundleFailedError.__module__}.{BundleFailedError.__name__}: "
"""Begins the line of a traceback that has the message of the runner's own error."""
_ELEMENT = "_element_of_step"  # an attribute of exceptions
_SHOWN = "_beam_spark_runner_shown_element"  # that of ``transforms.declarative.keyed_do_fn``
_STEP_IN_MESSAGE = re.compile(r"\[while running '(.*?)'\]", re.DOTALL)
_MACHINERY = re.compile(r"(^|/)apache_beam/(runners/|transforms/core\.py)|/beam_spark_runner/")


@contextlib.contextmanager
def failures_of(stage_name: str) -> Iterator[None]:
    """Assign exceptions of the block to their step, or to the stage if no step is known.

    A StoredDataError is raised unchanged.
    """
    try:
        yield
    except StoredDataError:
        raise
    except BaseException as error:  # user code may call sys.exit
        raise failure_of(error, stage_name) from error


def failure_of(error: BaseException, stage_name: str) -> BundleFailedError:
    """Return the error of a failed bundle, with the step that raised the exception.

    Beam puts the step into the message of exceptions of user code. Other exceptions (of a
    coder, of ``setup``) are assigned to the stage, unless ``charge`` has assigned them to a step.
    """
    if isinstance(error, BundleFailedError):
        return error
    steps = _steps_named_by(error)
    if is_charged(error) and error.__context__ is not None:
        error = error.__context__  # Beam raises a copy, whose message has the step in it
    step = steps[0] if steps else stage_name
    rendered = render_error(error, _users_frames(error))
    text = f"{rendered.traceback_text.rstrip()} [while running '{step}']\n"  # as on other runners
    if complaint := _complaint_about(error):
        text = f"{text}{complaint}.\n"
    if element := _element_of(error):
        text = f"{text}Element: {element}\n"
    failure = BundleFailedError(step, rendered.cause, text, raised_of(error))
    # Beam must not add the steps through which the error passes before we catch it.
    failure._tagged_with_step = True  # type: ignore[attr-defined]
    return failure


def _complaint_about(error: BaseException) -> str:
    """Say why code does not find a variable of the program's main module, if that is the error."""
    main = sys.modules["__main__"]
    if isinstance(error, NameError) and isinstance(main, MainModule):
        return main.complaint_about(error.name)
    return ""


def described(error: BaseException) -> str:
    """Render an exception in an SDK harness, as ``remote.failures`` parses it."""
    current: BaseException | None = error
    while current is not None:  # Beam's handling of an exception may raise another one
        if is_charged(current) and (failure := failure_of(current, "")).step:
            return OUR_OWN + message_of(failure, 2 * MAX_TRACEBACK_LENGTH)
        current = current.__cause__ or current.__context__
    return render_error(error).traceback_text


class ChargedTo:
    """A context manager that assigns exceptions of its block to a step.

    A class, since operations enter it for each chunk or key, and a generator would cost more.
    """

    __slots__ = ("_step_name",)

    def __init__(self, step_name: str) -> None:
        self._step_name = step_name

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:  # user code may call sys.exit
            charge(error, self._step_name)


def charge(error: BaseException, step_name: str) -> None:
    """Raise a BundleFailedError that names the step, unless the error is assigned already."""
    if not is_charged(error):
        raise failure_of(error, step_name) from error


def note_element(error: BaseException, element: object) -> None:
    """Attach the failed element to an error, unless it is assigned to a step already.

    Args:
        error: The exception; ``failure_of`` adds the element to its message. It may have an element
            that its step shows in place of the one that the step was given.
        element: Any value; only its text is kept, of bounded length.
    """
    if not is_charged(error):
        with contextlib.suppress(Exception):  # the exception may define __setattr__ or slots
            setattr(error, _ELEMENT, short_text_of(vars(error).pop(_SHOWN, element)))


def _element_of(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        return str(getattr(error, _ELEMENT, ""))
    return ""


def is_charged(error: BaseException) -> bool:
    """Whether an error names its step already, or is not to be assigned to any."""
    try:
        return bool(getattr(error, "_tagged_with_step", False))
    except Exception:  # the exception may define __getattr__
        return False


def _steps_named_by(error: BaseException) -> list[str]:
    """Find the steps that Beam has put into the text of an exception.

    Its arguments are searched, too, since its ``__str__`` may leave them out.
    """
    return [step for text in texts_in(error) for step in _STEP_IN_MESSAGE.findall(text)]


def _users_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback without the frames of Beam and the runner that led to user code."""
    frames = error.__traceback__
    while frames is not None and _MACHINERY.search(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    return frames or error.__traceback__
