"""What reaches a client of the errors of a service."""

from typing import Any
from urllib.parse import quote

import grpc
import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.server.refusals import refuses


class Context:
    """Stands for gRPC's."""

    def set_trailing_metadata(self, metadata: Any) -> None: ...

    def abort(self, code: Any, details: str) -> None:
        self.answer = code, details


def refused(error: BaseException) -> tuple[Any, str]:
    @refuses
    def method(self: Any, request: Any, context: Any) -> None:
        raise error

    context = Context()
    method(None, None, context)
    code, details = context.answer
    return code, details


@pytest.mark.parametrize("letter", ["a", "%", "\n", "я", "步", "🙂"])
def test_texts_fit_into_the_metadata_of_a_call(letter: str) -> None:
    """gRPC's clients take 8 KB, and each byte that is not ASCII's is three in it."""
    code, details = refused(OptionsError("option", letter * 100_000))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("--option: " + letter * 100)
    assert len(quote(details, safe=" ")) < 7_000
    assert "characters are left out" in details


def test_what_argparse_raises_is_an_answer_too() -> None:
    code, details = refused(SystemExit(2))
    assert (code, details) == (grpc.StatusCode.INTERNAL, "2")
