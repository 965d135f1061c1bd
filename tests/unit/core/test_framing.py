"""Messages in a stream, in whatever pieces it comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.framing import FrameTooLongError, Unframer, framed


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 30)))
def test_messages_survive_any_cut(messages: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, messages))
    unframer = Unframer()
    found: list[bytes] = []
    for size in [*cuts, len(stream) + 1]:
        found += unframer.feed(stream[:size])
        stream = stream[size:]
    assert found == messages


def test_a_message_that_is_too_long_is_found_by_its_length_alone() -> None:
    unframer = Unframer(most_bytes=10)
    assert list(unframer.feed(framed(b"x" * 10))) == [b"x" * 10]
    with pytest.raises(FrameTooLongError, match="11 bytes exceeds the limit of 10"):
        list(unframer.feed(framed(b"x" * 11)[:4]))


def test_the_limit_may_change_between_two_messages_of_one_piece() -> None:
    unframer = Unframer(most_bytes=1)
    found = []
    for message in unframer.feed(framed(b"a") + framed(b"long")):
        found.append(message)
        unframer.most_bytes = 4
    assert found == [b"a", b"long"]
