"""From an SDK's error text to the step, its cause, and the user's traceback."""

import traceback

import pytest

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.harness.remote.sdk_failures import user_failure


def text_of(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def raised(message: str = "boom") -> Exception:
    try:
        raise ValueError(message)
    except ValueError as error:
        return error


def copied() -> Exception:
    """As Beam's SDK does it."""
    try:
        try:
            raise raised()
        except ValueError as error:
            raise ValueError(f"{error} [while running 'Outer/Step']") from error
    except ValueError as copy:
        copy.__cause__ = None
        copy.__suppress_context__ = False
        return copy


def test_the_copy_names_the_step_and_the_original_is_shown() -> None:
    failure = user_failure(text_of(copied()), "stage", [])
    assert failure.step == "Outer/Step"
    assert failure.cause == "ValueError: boom"
    assert "raise ValueError(message)" in failure.traceback_text
    assert failure.traceback_text.endswith("ValueError: boom [while running 'Outer/Step']\n")
    assert failure.traceback_text.count("while running") == 1


def test_what_was_raised_while_another_error_was_handled() -> None:
    """The copy stands after the whole of the user's chain."""
    try:
        try:
            try:
                raise KeyError("first")
            except KeyError:
                raise ValueError("second")  # noqa: B904
        except ValueError as error:
            raise ValueError(f"{error} [while running 'Step']")  # noqa: B904
    except ValueError as copy:
        failure = user_failure(text_of(copy), "stage", [])
    assert failure.cause == "ValueError: second"
    assert "KeyError: 'first'" in failure.traceback_text
    assert failure.traceback_text.endswith("ValueError: second [while running 'Step']\n")
    assert failure.traceback_text.count("while running") == 1


def test_an_error_without_a_step_is_charged_to_the_stage() -> None:
    failure = user_failure(text_of(raised()), "stage", ["Step"])
    assert (failure.step, failure.cause) == ("stage", "ValueError: boom")


@pytest.mark.parametrize("message", ["boom", "several\nlines", "Step: in its message", ""])
def test_our_own_error_is_taken_apart(message: str) -> None:
    inner = BundleFailedError("Step: one", f"ValueError: {message}", text_of(raised(message)))
    failure = user_failure(text_of(inner), "stage", ["Step", "Step: one"])
    assert failure.step == "Step: one"
    assert failure.cause == f"ValueError: {message}"
    assert failure.traceback_text.rstrip() == text_of(raised(message)).rstrip()


def test_a_group_of_errors_is_taken_apart() -> None:
    group = "  + Exception Group Traceback (most recent call last):\n  |   File …\n"
    inner = BundleFailedError("Step", "ExceptionGroup: several (1 sub-exception)", group)
    failure = user_failure(text_of(inner), "stage", ["Step"])
    assert failure.cause == "ExceptionGroup: several (1 sub-exception)"
    assert failure.traceback_text.rstrip() == group.rstrip()


@pytest.mark.parametrize(
    ("text", "cause"), [("", ""), ("no traceback", "no traceback"), ("a\nb\n", "a\nb")]
)
def test_text_of_any_kind_is_a_cause(text: str, cause: str) -> None:
    assert user_failure(text, "stage", ["Step"]).cause == cause
