"""Whether steps process chunks of elements."""

from typing import Literal

StepChunks = Literal["auto", "off"]
"""Steps process chunks where that is known to change nothing; Beam's own operations run them."""
