"""What Beam's resource hints ask for: the resources that the steps of a stage need.

Source: ``beam:resources:*`` of the proto's ``Environment.resource_hints``;
``apache_beam.transforms.resources``.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

MIN_RAM = "beam:resources:min_ram_bytes:v1"
CPU_COUNT = "beam:resources:cpu_count:v1"
MAX_BUNDLES = "beam:resources:max_active_bundles_per_worker:v1"
ACCELERATOR = "beam:resources:accelerator:v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of a stage: enough for each of its steps.

    Attributes:
        ram_bytes: The least memory of a worker; 0: any.
        cpus: The least number of cores of a worker; 0: any.
        max_bundles: The largest number of bundles that a worker may process at a time; 0: any.
        accelerators: The number of accelerators of a worker.
        accelerator: The kind of accelerator, such as ``nvidia-tesla-t4``.
        steps: The names of the steps that ask for any of this.
        problems: Hints that cannot be understood, and why; they ask for nothing.
    """

    ram_bytes: int = 0
    cpus: int = 0
    max_bundles: int = 0
    accelerators: int = 0
    accelerator: str = ""
    steps: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def merged(self, other: "Resources") -> "Resources":
        """Return what is enough for both."""
        bundles = [most for most in (self.max_bundles, other.max_bundles) if most]
        return Resources(
            ram_bytes=max(self.ram_bytes, other.ram_bytes),
            cpus=max(self.cpus, other.cpus),
            max_bundles=min(bundles, default=0),
            accelerators=max(self.accelerators, other.accelerators),
            accelerator=self.accelerator or other.accelerator,
            steps=tuple(dict.fromkeys((*self.steps, *other.steps))),
            problems=tuple(dict.fromkeys((*self.problems, *other.problems))),
        )


NO_RESOURCES = Resources()


def merged(parts: Iterable[Resources]) -> Resources:
    """Return what is enough for all parts."""
    return functools.reduce(Resources.merged, parts, NO_RESOURCES)


def resources_of(step: str, hints: Mapping[str, bytes]) -> Resources:
    """Return what the hints of a step ask for. Hints that Beam does not define ask for nothing.

    Args:
        step: The name of the step.
        hints: Values by URN.
    """
    result = NO_RESOURCES
    for urn, parse in _PARSERS.items():
        if urn in hints:
            try:
                result = result.merged(parse(hints[urn].decode()))
            except ValueError as error:
                result = result.merged(Resources(problems=(f"{urn.split(':')[2]}: {error}",)))
    return result if result == NO_RESOURCES else replace(result, steps=(step,))


def _accelerator(text: str) -> Resources:
    """Parse ``type:nvidia-tesla-t4;count:1;install-nvidia-driver``, as Dataflow has defined it."""
    parts = dict(part.partition(":")[::2] for part in text.split(";"))
    if not parts.get("type"):
        raise ValueError(f"{text!r} has no type: write type:nvidia-tesla-t4;count:1, for example")
    return Resources(accelerators=_count(parts.get("count") or "1"), accelerator=parts["type"])


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise ValueError(f"{text!r} is not a positive number")
    return int(text)


_PARSERS: Mapping[str, Callable[[str], Resources]] = {
    MIN_RAM: lambda text: Resources(ram_bytes=_count(text)),
    CPU_COUNT: lambda text: Resources(cpus=_count(text)),
    MAX_BUNDLES: lambda text: Resources(max_bundles=_count(text)),
    ACCELERATOR: _accelerator,
}
