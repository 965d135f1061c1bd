"""Side inputs that are looked up by key, in Python's SDK.

What a bundle has looked up is kept in a dictionary, so that Python's equality of keys would decide
what a lookup gives: ``True`` would get the values of ``1``, if that was looked up before.
"""

from typing import Any

from apache_beam.coders import Coder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coder_impl import CoderImpl
from apache_beam.portability import common_urns
from apache_beam.pvalue import SideInputData
from apache_beam.runners.worker import bundle_processor
from typing_extensions import override

from beam_spark_runner.harness.values.encoded_keys import Places

_MULTIMAP = common_urns.side_inputs.MULTIMAP.urn
_BeamsMap: Any = bundle_processor.StateBackedSideInputMap


def patch_multimaps() -> None:
    """Have all side inputs of this process be ``SideInputMap``."""
    bundle_processor.StateBackedSideInputMap = SideInputMap


class SideInputMap(_BeamsMap):  # type: ignore[misc]
    """A side input of a step; keys of a multimap are as equal as their encodings."""

    def __init__(
        self,
        state_handler: Any,
        transform_id: str,
        tag: str | None,
        side_input_data: SideInputData,
        coder: WindowedValueCoder,
        **options: Any,
    ) -> None:
        if side_input_data.access_pattern == _MULTIMAP:
            pairs = coder.wrapped_value_coder
            places = Places(pairs.key_coder())
            if not places.are_keys:
                of_places = TupleCoder(
                    (_PlaceCoder(pairs.key_coder(), places), pairs.value_coder())
                )
                coder = WindowedValueCoder(of_places, coder.window_coder)
                side_input_data = _by_places(side_input_data, places)
        super().__init__(state_handler, transform_id, tag, side_input_data, coder, **options)


def _by_places(data: SideInputData, places: Places) -> SideInputData:
    view_fn = data.view_fn
    return SideInputData(
        data.access_pattern,
        data.window_mapping_fn,
        lambda values: view_fn(_ByPlaces(values, places)),
    )


class _ByPlaces:
    """Finds values by key in what has them by place."""

    def __init__(self, values: Any, places: Places) -> None:
        self._values, self._place = values, places.place

    def __getitem__(self, key: Any) -> Any:
        return self._values[self._place(key)]

    @override
    def __reduce__(self) -> Any:
        return self._values.__reduce__()


class _PlaceCoder(Coder):  # type: ignore[misc]
    """Encodes the place of a key as the key's own coder encodes the key."""

    def __init__(self, coder: Coder, places: Places) -> None:
        self._coder, self._places = coder, places

    @override
    def get_impl(self) -> CoderImpl:
        return _PlaceCoderImpl(self._coder.get_impl(), self._places)


class _PlaceCoderImpl(CoderImpl):  # type: ignore[misc]
    def __init__(self, impl: CoderImpl, places: Places) -> None:
        self._impl, self._places = impl, places

    def encode_to_stream(self, value: Any, stream: Any, nested: bool) -> None:
        self._impl.encode_to_stream(self._places.key(value), stream, nested)

    def decode_from_stream(self, stream: Any, nested: bool) -> Any:
        return self._places.place(self._impl.decode_from_stream(stream, nested))
