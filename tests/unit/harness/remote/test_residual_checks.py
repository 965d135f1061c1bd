"""Residuals of an SDK harness are checked before anything decodes them."""

from collections.abc import Callable

import pytest
from apache_beam.coders import BytesCoder, FloatCoder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.harness.remote.sdk_residuals import ResidualChecks

BYTES = BytesCoder()
SIZED = TupleCoder([TupleCoder([BYTES, TupleCoder([BYTES, BYTES])]), FloatCoder()])
CODER = WindowedValueCoder(SIZED, GlobalWindowCoder())
VALUE = ((b"element", (b"restriction", b"state")), 1.0)


def coded(windows: tuple[GlobalWindow, ...] = (GlobalWindow(),)) -> bytes:
    return bytes(CODER.get_impl().encode_nested(WindowedValue(VALUE, 0, windows)))


def root(element: bytes) -> beam_fn_api_pb2.DelayedBundleApplication:
    application = beam_fn_api_pb2.BundleApplication(transform_id="read", element=element)
    return beam_fn_api_pb2.DelayedBundleApplication(application=application)


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        pytest.param(b"", "0 elements", id="empty"),
        pytest.param(coded() + coded(), "2 elements", id="two"),
        pytest.param(coded() + b"x", "ends within", id="trailing bytes"),
        pytest.param(coded(()), "no window", id="in no window"),
        pytest.param(coded()[:13] + b"\x80\x80\x80\x80\x01", "ends within", id="2^28 bytes"),
        pytest.param(b"\0\0\0\1\x80\x80\x80\x80\x01", "ends within", id="no header"),
    ],
)
def test_what_is_no_residual(element: bytes, problem: str) -> None:
    checks = ResidualChecks(CODER)
    with pytest.raises(FnApiProtocolError, match=problem) as raised:
        checks.check([root(coded()), root(element)])
    assert "'read'" in str(raised.value)


def test_a_residual_that_is_cut_anywhere() -> None:
    checks, whole = ResidualChecks(CODER), coded()
    for end in range(len(whole)):
        with pytest.raises(FnApiProtocolError):
            checks.check([root(whole[:end])])
    checks.check([root(whole)])


@pytest.mark.parametrize("change", [lambda byte: byte ^ 0x80, lambda byte: 0xFF])
def test_any_other_byte_is_an_error_or_another_residual(change: Callable[[int], int]) -> None:
    checks, whole = ResidualChecks(CODER), coded()
    for place in range(len(whole)):
        element = whole[:place] + bytes([change(whole[place])]) + whole[place + 1 :]
        try:
            checks.check([root(element)])
        except FnApiProtocolError:
            continue
        decoded = CODER.get_impl().decode_nested(element)
        assert CODER.get_impl().encode_nested(decoded) == element
