"""State in pages: everything once and in order, wherever a reader begins."""

import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from apache_beam.portability.api import beam_fn_api_pb2
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.harness.fn_api.services.instructions import InstructionIds
from beam_spark_runner.harness.fn_api.services.state_service import BundleState, Pages, StateStream

SOON_S = 60.0
PARTS = st.lists(st.binary(max_size=6), max_size=20)


def all_pages(pages: Pages, key: bytes, parts: list[bytes]) -> list[bytes]:
    found, token = [], b""
    while True:
        page, token = pages.get(key, token, lambda: parts)
        found.append(page)
        if not token:
            return found


@given(PARTS, st.integers(1, 10))
def test_pages_are_the_whole_in_pieces(parts: list[bytes], page_bytes: int) -> None:
    found = all_pages(Pages(page_bytes), b"key", parts)
    assert b"".join(found) == b"".join(parts)
    longest = max(map(len, parts), default=0)
    assert all(len(page) < page_bytes + longest for page in found)


@given(PARTS, st.integers(1, 10), st.data())
def test_a_page_is_the_same_whenever_it_is_asked_for(
    parts: list[bytes], page_bytes: int, data: st.DataObject
) -> None:
    pages = Pages(page_bytes)
    expected = all_pages(Pages(page_bytes), b"key", parts)
    for number in data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=10)):
        token = b"%d" % number if number else b""
        assert pages.get(b"key", token, lambda: parts)[0] == expected[number]


def test_readers_that_go_forward_do_not_begin_again() -> None:
    begun = []

    def parts(key: bytes) -> Iterator[bytes]:
        begun.append(key)
        return iter([key] * 10)

    pages, tokens = Pages(1), {b"a": b"", b"b": b""}
    for _ in range(9):
        for key, token in tokens.items():
            page, tokens[key] = pages.get(key, token, functools.partial(parts, key))
            assert page == key
    assert begun == [b"a", b"b"]


@pytest.mark.parametrize("token", [b"x", b"-1", b"1.0", b"9" * 30, b" 1"])
def test_a_token_that_is_none_of_ours(token: bytes) -> None:
    with pytest.raises(FnApiProtocolError, match="no continuation token"):
        Pages().get(b"key", token, lambda: [b"x"])


@pytest.mark.parametrize("parts", [[b"x"] * 3, [b""] * 3, []])
@pytest.mark.parametrize("beyond", [0, 1, 999_999_990])
def test_a_token_beyond_the_end_is_an_error_at_once(parts: list[bytes], beyond: int) -> None:
    pages = Pages(1)
    number = len(all_pages(pages, b"other", parts)) + beyond
    with pytest.raises(FnApiProtocolError, match=f"no page {number}"):
        pages.get(b"key", b"%d" % number, lambda: parts)


def test_any_number_of_pages() -> None:
    """Iterators are not nested in each other: the time would grow with the square of the pages."""
    count = 100_000
    assert len(all_pages(Pages(1), b"key", [b"x"] * count)) == count


class Lookup:
    id = "job/side"

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        yield b"%r of %r" % (key, window), 1
        raise OSError("the disk is gone")

    def keys(self, window: bytes) -> Iterator[bytes]:
        raise OSError("the disk is gone")


def test_what_goes_wrong_while_state_is_read_is_an_error_of_the_request() -> None:
    ids, stream = InstructionIds(), StateStream()
    id_ = ids.next()
    stream.open(id_, BundleState({("t", "s"): Lookup()}))
    key = beam_fn_api_pb2.StateKey
    request = beam_fn_api_pb2.StateRequest(
        id="7",
        instruction_id=id_,
        state_key=key(
            multimap_side_input=key.MultimapSideInput(
                transform_id="t", side_input_id="s", window=b"w", key=b"k"
            )
        ),
        get=beam_fn_api_pb2.StateGetRequest(),
    )
    answer = stream.answer(request)
    assert (answer.id, answer.error) == ("7", "OSError: the disk is gone")
    stream.forget(id_)
    assert "no bundle" in stream.answer(request).error


def test_ids_of_instructions() -> None:
    ids = InstructionIds()
    assert [ids.next(), ids.next()] == ["1", "2"]
    assert [
        id_ for id_ in ("1", "2", "3", "0", "-1", "01", "", "x", "٢") if ids.was_issued(id_)
    ] == [
        "1",
        "2",
    ]


def group_request(instruction: str, group: bytes) -> beam_fn_api_pb2.StateRequest:
    key = beam_fn_api_pb2.StateKey(runner=beam_fn_api_pb2.StateKey.Runner(key=group))
    return beam_fn_api_pb2.StateRequest(
        instruction_id=instruction, state_key=key, get=beam_fn_api_pb2.StateGetRequest()
    )


def test_a_group_is_gone_with_its_bundle() -> None:
    stream, first, second = StateStream(), BundleState({}), BundleState({})
    first.keep_group(b"1/group-1", [b"value"])
    stream.open("1", first)
    assert stream.answer(group_request("1", b"1/group-1")).get.data == b"value"
    stream.forget("1")
    stream.open("2", second)
    for instruction in ("1", "2"):
        answer = stream.answer(group_request(instruction, b"1/group-1"))
        assert answer.error.startswith("GroupClosedError: the values of a group can be read only")


class SlowLookup:
    """Its values are read only as a test says."""

    id = "job/slow"

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        while not self.goes_on.is_set():
            self.begun.set()
            yield b"", 1

    def keys(self, window: bytes) -> Iterator[bytes]:
        return iter(())


def side_input_request(instruction: str) -> beam_fn_api_pb2.StateRequest:
    key = beam_fn_api_pb2.StateKey.MultimapSideInput(
        transform_id="t", side_input_id="s", window=b"w", key=b"k"
    )
    return beam_fn_api_pb2.StateRequest(
        instruction_id=instruction,
        state_key=beam_fn_api_pb2.StateKey(multimap_side_input=key),
        get=beam_fn_api_pb2.StateGetRequest(),
    )


class QuickLookup:
    id = "job/quick"

    def keys(self, window: bytes) -> Iterator[bytes]:
        yield from (b"key 1", b"key 2 of " + window)

    def values(self, window: bytes, key: bytes | None) -> Iterator[tuple[bytes, int]]:
        yield b"value", 1


def test_the_keys_of_a_multimap() -> None:
    state = BundleState({("t", "s"): QuickLookup()})

    def asked(**key: Any) -> bytes:
        state_key = beam_fn_api_pb2.StateKey(**key)
        request = beam_fn_api_pb2.StateRequest(
            state_key=state_key, get=beam_fn_api_pb2.StateGetRequest()
        )
        return bytes(state.answer(request).get.data)

    key = beam_fn_api_pb2.StateKey
    of = {"transform_id": "t", "side_input_id": "s", "window": b"w"}
    keys = key.MultimapKeysSideInput(**of)
    assert asked(multimap_keys_side_input=keys) == b"key 1key 2 of w"
    with pytest.raises(FnApiProtocolError, match="the side input 'x' of 't', which the stage does"):
        asked(multimap_keys_side_input=key.MultimapKeysSideInput(**{**of, "side_input_id": "x"}))
    with pytest.raises(FnApiProtocolError, match="of kind multimap_keys_values_side_input"):
        asked(multimap_keys_values_side_input=key.MultimapKeysValuesSideInput(**of))


def test_a_long_answer_keeps_only_its_own_bundle_waiting() -> None:
    slow = SlowLookup()
    stream, other = StateStream(), StateStream()
    stream.open("1", BundleState({("t", "s"): slow}))
    for each in (stream, other):
        each.open("2", BundleState({("t", "s"): QuickLookup()}))
    answers: list[beam_fn_api_pb2.StateResponse] = []
    asking = threading.Thread(target=lambda: answers.append(stream.answer(side_input_request("1"))))
    asking.start()
    assert slow.begun.wait(SOON_S)
    for each in (stream, other):
        assert each.answer(side_input_request("2")).get.data == b"value"
        each.forget("2")
    forgetting = threading.Thread(target=stream.forget, args=("1",))
    forgetting.start()
    assert not answers
    assert forgetting.is_alive()  # a group that the answer may read is closed next
    slow.goes_on.set()
    for thread in (asking, forgetting):
        thread.join(SOON_S)
        assert not thread.is_alive()
    assert len(answers) == 1
