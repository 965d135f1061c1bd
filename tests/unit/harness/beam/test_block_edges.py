"""What a harness of ours makes of elements at the edges of a stage."""

from typing import Any

import numpy as np
import pytest
from apache_beam.coders import BytesCoder, FloatCoder, StrUtf8Coder, TupleCoder
from apache_beam.coders.coders import LengthPrefixCoder

from beam_spark_runner.harness.beam.plugin.block_edges import _encoder

PARTS = [BytesCoder(), StrUtf8Coder(), FloatCoder(), LengthPrefixCoder(FloatCoder())]
VALUES = {"BytesCoder": b"x", "StrUtf8Coder": "x", "FloatCoder": 0.5, "LengthPrefixCoder": 0.5}


@pytest.mark.parametrize("key", PARTS, ids=lambda coder: type(coder).__name__)
@pytest.mark.parametrize("value", PARTS, ids=lambda coder: type(coder).__name__)
@pytest.mark.parametrize("count", [1, 3])
def test_a_kv_has_two_parts(key: Any, value: Any, count: int) -> None:
    """As Beam's own coder demands: a third part would be lost."""
    encode = _encoder(TupleCoder([key, value]))
    if encode is None:  # doubles, which a writer encodes
        return
    good = (VALUES[type(key).__name__], VALUES[type(value).__name__])
    assert len(encode(good)) == 2
    with pytest.raises(ValueError, match="values to unpack"):
        encode((*good, good[0])[:count])


def test_bytes_are_any_bytes() -> None:
    encode = _encoder(BytesCoder())
    assert encode is not None
    assert encode(np.bytes_(b"x")) == b"x"
    with pytest.raises(TypeError, match="not str"):
        encode("x")
