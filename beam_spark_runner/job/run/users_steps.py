"""Names the steps of a user in the errors of a job."""

from collections.abc import Mapping

from beam_spark_runner.core.errors import BundleFailedError, StuckBundleError


def name_users_step(error: BaseException, steps: Mapping[str, str]) -> None:
    """Have an error name the step that a user has applied, where it names a part of that step.

    The user's traceback in the error keeps the name of the part.

    Args:
        error: What has failed a job; it is changed.
        steps: The names by which users know the steps, by their full names.
    """
    if not isinstance(error, BundleFailedError | StuckBundleError):
        return
    name, users_name = error.step, steps.get(error.step)
    if users_name is not None and users_name != name:
        error.step = users_name
        if error.args[:1] == (name,):  # from which a copy is made
            error.args = (users_name, *error.args[1:])
