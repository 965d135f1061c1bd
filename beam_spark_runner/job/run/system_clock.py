"""The clocks of this machine."""

import time


class SystemClock:
    """See ``driving.clock``."""

    def now_us(self) -> int:
        """See ``Clock``."""
        return time.time_ns() // 1_000

    def monotonic_ns(self) -> int:
        """See ``Clock``."""
        return time.monotonic_ns()
