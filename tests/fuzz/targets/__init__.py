"""The parts of the runner that take what strangers send."""

from tests.fuzz import corpus
from tests.fuzz.targets import (
    backchannel,
    bundle,
    files,
    harness,
    jobs,
    programs,
    services,
    state,
    stored,
    windows,
)
from tests.fuzz.targets.base import Messages, Target

_MODULES = (harness, bundle, state, windows, services, jobs, programs, backchannel, files, stored)


def all_targets() -> list[Target]:
    """Return all targets, with what was recorded of all SDKs."""
    messages = Messages(corpus.sdks())
    return [target for module in _MODULES for target in module.targets(messages)]
