"""Samples of the elements that steps emit, for people, if the job asks for them.

Beam's receivers offer the first element after the last one was taken: of a chunk, or of many
elements that are sent one by one, its first. Beam's own ``DataSampler`` encodes its samples, and
has a timer for each output; here, whoever wants samples takes them.
"""

import importlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core.rendering import class_name, short_text_of
from beam_spark_runner.harness.beam.current_element import ElementOfErrors
from beam_spark_runner.harness.failures import note_element

EXPERIMENT = "enable_data_sampling"
"""Beam's name: one of ``--experiments``."""


class ElementSamples(ElementOfErrors):
    """Keeps one element of each output of a job until it is taken. Threads: any may take.

    Args:
        redact: What a sample shows in place of its element, or the reason why it shows nothing.
    """

    def __init__(self, redact: Callable[[Any], Any] | str) -> None:
        self._redact = redact
        self._by_collection: dict[str, _Output] = {}
        self._by_transform: dict[str, list[_Output]] = {}
        self._lock = threading.Lock()

    @override
    def initialize_samplers(
        self,
        transform_id: str,
        descriptor: beam_fn_api_pb2.ProcessBundleDescriptor,
        coder_factory: Any,
    ) -> None:
        """See ``DataSampler``: outputs are in the order of the transform's."""
        with self._lock:
            self._by_transform[transform_id] = [
                self._by_collection.setdefault(collection, _Output())
                for collection in descriptor.transforms[transform_id].outputs.values()
            ]

    @override
    def sampler_for_output(self, transform_id: str, output_index: int) -> "_Output":  # type: ignore[override]
        """See ``DataSampler``."""
        return self._by_transform[transform_id][output_index]

    def take(self) -> Mapping[str, str]:
        """Return a sample of each collection that has one, as text, and wait for the next ones."""
        with self._lock:
            outputs = list(self._by_collection.items())
        return {
            collection: self.text_of(output.take())
            for collection, output in outputs
            if output.has_element
        }

    def text_of(self, element: Any) -> str:
        """Return what is shown of an element; of an SDK harness, these are its bytes."""
        if isinstance(self._redact, str):
            return self._redact
        try:
            return short_text_of(self._redact(element))
        except Exception as error:  # of the user's function
            return f"not shown: the function of --sample_redaction raised {class_name(error)}"


class _Output:
    """One output, as Beam's ``OutputSampler`` and its ``ElementSampler`` in one."""

    def __init__(self) -> None:
        self.element_sampler = self
        self.has_element = False
        self.el: Any = None

    def take(self) -> Any:
        """Return the element, which is not kept."""
        element, self.el = self.el, None
        self.has_element = False
        while isinstance(element, WindowedValue):
            element = element.value
        return element

    def sample_exception(
        self, element: Any, exc_info: Any, transform_id: str, instruction_id: str
    ) -> None:
        """See ``ElementOfErrors``."""
        if element is not None:
            note_element(exc_info[1], element.value)


def samples_of(options: Mapping[str, Any]) -> ElementSamples | None:
    """Return what keeps samples of a job. None: the job does not ask for them.

    Args:
        options: Its options, by name.
    """
    if EXPERIMENT not in (options.get("experiments") or ()):
        return None
    given = options.get("sample_redaction")
    if not given:
        return ElementSamples(_nothing_redacted)
    module, _, name = str(given).partition(":")
    try:
        return ElementSamples(getattr(importlib.import_module(module), name))
    except Exception as error:  # of the user's module
        reason = f"not shown: {given} of --sample_redaction cannot be imported: {error}"
        return ElementSamples(reason)


def _nothing_redacted(element: Any) -> Any:
    return element
