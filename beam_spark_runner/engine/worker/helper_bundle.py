"""Bundles in which the SDK helps a stage: to merge accumulators or windows, or to truncate."""

from collections.abc import Mapping, Sequence
from typing import Any

from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import BundleFailedError, FnApiProtocolError
from beam_spark_runner.engine.program import HelperProgram
from beam_spark_runner.engine.side_inputs.lookup import GatheredRows
from beam_spark_runner.engine.side_inputs.views import EpochView
from beam_spark_runner.engine.worker.runtime import JobRuntime
from beam_spark_runner.portable.environment_facts import sdk_of


def run_helper(
    job: JobRuntime,
    program: HelperProgram,
    elements: Sequence[WindowedValue],
    side_inputs: Mapping[tuple[str, str], GatheredRows | EpochView] | None = None,
) -> tuple[list[WindowedValue], Sequence[bytes]]:
    """Run one bundle of a helper.

    Args:
        job: the runtime of the job that the task belongs to.
        program: the program of the helper.
        elements: the input of the bundle.
        side_inputs: those of the helper, see ``StagesOfTask.side_inputs``. None: it has none.

    Returns:
        The output, in the order of the elements; and monitoring infos.

    Raises:
        BundleFailedError: user code raised.
    """
    views = side_inputs or {}
    harness = job.stage(program, frozenset(view.cache_id for view in views.values()))
    (collection,) = harness.output_coders
    receiver = _OutputReceiver()
    try:
        bundle = harness.start_bundle({collection: receiver}, views)
    except BundleFailedError:
        job.discard(program.stage)
        raise
    try:
        bundle.enter()
        bundle.push([element.value for element in elements], [*elements])
        result = bundle.finish()
    except BaseException:
        bundle.abort()
        job.discard(program.stage)
        raise
    return receiver.elements, result.monitoring_infos


def wrong_answer(program: HelperProgram, problem: str) -> FnApiProtocolError:
    """Return the error for an SDK that was asked about windows.

    Args:
        program: the program of the helper that asked.
        problem: what is wrong with the answer.
    """
    coded = program.description.coded_environment
    sdk = sdk_of(beam_runner_api_pb2.Environment.FromString(coded))
    return FnApiProtocolError(
        f"{program.name}: the SDK {sdk} was asked about windows, and its answer is wrong: {problem}"
    )


class _OutputReceiver:
    """See ``Receiver``."""

    def __init__(self) -> None:
        self.elements: list[WindowedValue] = []

    def accept(self, windowed_value: WindowedValue) -> None:
        self.elements.append(windowed_value)

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        pairs = zip(values, origins, strict=True)
        self.elements += [origin.with_value(value) for value, origin in pairs]
