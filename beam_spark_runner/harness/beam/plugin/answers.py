"""Makes an SDK harness send exceptions of user code as text that gRPC can transmit.

Beam's harness sends the formatted traceback. If that is no valid Unicode, the response cannot be
serialised, and the runner would wait for it forever.
"""

import functools
from collections.abc import Callable
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import sdk_worker

from beam_spark_runner.harness.failures import described


def answer(task: Callable[[], Any], request: Any) -> Any:
    """Execute an instruction.

    Args:
        task: The task that Beam's harness runs for the instruction.
        request: The InstructionRequest.

    Returns:
        The result of the task, usually an InstructionResponse. If the task raised an exception, a
        response with that; it is not printed here, because the job raises it.
    """
    try:
        return task()
    except BaseException as error:  # as Beam has it: user code may call sys.exit
        return beam_fn_api_pb2.InstructionResponse(
            instruction_id=request.instruction_id, error=described(error)
        )


def install() -> None:
    """Have the harness of this process execute all instructions by ``answer``."""
    execute = sdk_worker.SdkHarness._execute

    @functools.wraps(execute)
    def execute_and_answer(self: Any, task: Callable[[], Any], request: Any) -> None:
        execute(self, functools.partial(answer, task, request), request)

    sdk_worker.SdkHarness._execute = execute_and_answer
