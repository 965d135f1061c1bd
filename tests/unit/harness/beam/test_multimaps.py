"""Multimaps are looked up by keys that are as equal as their encodings."""

import math
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from apache_beam.coders import FastPrimitivesCoder, StrUtf8Coder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.pvalue import SideInputData
from apache_beam.runners.worker import bundle_processor
from apache_beam.transforms.window import GlobalWindow

from beam_spark_runner.harness.beam.multimaps import SideInputMap
from beam_spark_runner.harness.beam.patches import patch_beam

KEYS = [True, 1, 1.0, False, 0, -0.0, 0.0, math.nan, (1, "x"), (True, "x"), ((1.0,),), ((1,),), "1"]
ANY = FastPrimitivesCoder()


class Values:
    """A state handler whose only value of a key is the key's encoding."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def blocking_get(self, state_key: beam_fn_api_pb2.StateKey, coder: Any) -> Iterator[bytes]:
        self.asked.append(state_key.multimap_side_input.key)
        return iter([state_key.multimap_side_input.key])


def view(key_coder: Any, handler: Values, of: type = SideInputMap) -> Any:
    coder = WindowedValueCoder(TupleCoder((key_coder, ANY)), GlobalWindowCoder())
    data = SideInputData(
        common_urns.side_inputs.MULTIMAP.urn, lambda window: window, lambda values: values
    )
    return of(handler, "step", "side", data, coder)[GlobalWindow()]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_whatever_was_looked_up_before(key: Any) -> None:
    found = view(ANY, Values())
    for other in [*KEYS, *reversed(KEYS)]:
        assert list(found[other]) == [ANY.get_impl().encode_nested(other)]
    assert list(found[key]) == [ANY.get_impl().encode_nested(key)]


def test_each_key_is_asked_for_once() -> None:
    """Its values are the same object, as in Beam."""
    handler = Values()
    found = view(ANY, handler)
    for key in KEYS:
        assert found[key] is found[key]
    assert view(StrUtf8Coder(), handler, SideInputMap)["a"] is not None


def test_it_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="multimap"):
        pickle.dumps(view(ANY, Values()))


def test_beams_own_confuses_keys() -> None:
    """Else there is nothing to patch any more."""
    beams = SideInputMap.__bases__[0]
    found = view(ANY, Values(), beams)
    assert [*found[True]] == [*found[1]]


def test_all_steps_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_processor, "StateBackedSideInputMap", SideInputMap.__bases__[0])
    patch_beam()
    assert bundle_processor.StateBackedSideInputMap is SideInputMap
