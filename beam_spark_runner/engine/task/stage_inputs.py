"""Inputs that readers push into in place of a bundle. See ``harness.bundle``."""

from collections.abc import Sequence

from beam_spark_runner.engine.task.open_stage import JoinedInput, NextStage
from beam_spark_runner.harness.bundle import Bundle, SteppedInput, StoringInput


class InputFromWithin:
    """A ``BundleInput`` for a stage that may be opened while another bundle runs."""

    def __init__(self, bundle: Bundle, joined: JoinedInput) -> None:
        self.push = bundle.push_from_within
        self.flush = joined.flush
        self.advance_key = joined.advance_key


class JoinedStoringInput(JoinedInput):
    """See ``StoringInput``."""

    def __init__(self, keys: StoringInput, bundle: Bundle, following: Sequence[NextStage]) -> None:
        super().__init__(bundle, following)
        self.begin_key = keys.begin_key
        self.advance_key_until = keys.advance_key_until


class JoinedSteppedInput(JoinedStoringInput):
    """See ``SteppedInput``."""

    def __init__(self, keys: SteppedInput, bundle: Bundle, following: Sequence[NextStage]) -> None:
        super().__init__(keys, bundle, following)
        self.fire_until = keys.fire_until
