"""Makes an SDK harness send exceptions of user code as text that gRPC can transmit.

Beam's harness sends what Python prints of an exception. Where that is no valid Unicode, the answer
cannot be made, and the runner would wait for it without end.
"""

import functools
from collections.abc import Callable
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import sdk_worker

from beam_spark_runner.harness.failures import described


def answer(task: Callable[[], Any], request: Any) -> Any:
    """Do what an instruction asks for.

    Args:
        task: of Beam's harness.
        request: the instruction.

    Returns:
        The InstructionResponse, or what else the task returns; if it raised, a response that
        says so. The job raises it: nothing is printed here.
    """
    try:
        return task()
    except BaseException as error:  # as Beam has it: user code may call sys.exit
        return beam_fn_api_pb2.InstructionResponse(
            instruction_id=request.instruction_id, error=described(error)
        )


def install() -> None:
    """Have the harness of this process answer so."""
    execute = sdk_worker.SdkHarness._execute

    @functools.wraps(execute)
    def execute_and_answer(self: Any, task: Callable[[], Any], request: Any) -> None:
        execute(self, functools.partial(answer, task, request), request)

    sdk_worker.SdkHarness._execute = execute_and_answer
