"""Groups of keys that are too large to be read as a whole."""

from beam_spark_runner.observing.epoch_status import EpochStatus
from beam_spark_runner.observing.large_groups import LARGEST_BYTES
from beam_spark_runner.observing.warnings import StreamWarnings


def warnings_of(*epochs: dict[str, int]) -> list[str]:
    found: list[str] = []
    warnings = StreamWarnings(found.append, 1_000_000)
    for number, sizes in enumerate(epochs):
        warnings.after_epoch(EpochStatus(epoch=number, group_bytes=sizes), float(number))
    return found


def test_a_large_group_is_named_once_with_the_option_to_set() -> None:
    large = {"Count": 3 * LARGEST_BYTES, "Sum": LARGEST_BYTES}
    (warning,) = warnings_of({"Count": 5}, large, large)
    assert warning.startswith("Count: a group of keys in the state store has 192 MB")
    assert "--max_parallelism" in warning


def test_each_step_has_its_own_warning() -> None:
    size = LARGEST_BYTES + 1
    found = warnings_of({"Count": size}, {"Sum": size})
    assert [each.split(":")[0] for each in found] == ["Count", "Sum"]
