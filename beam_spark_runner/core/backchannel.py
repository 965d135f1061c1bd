"""How workers send messages to the driver while tasks run."""

from typing import Literal

BackchannelKind = Literal["auto", "files", "off"]
"""By a port of the driver, or by files if workers cannot reach it; only by files; not at all."""
