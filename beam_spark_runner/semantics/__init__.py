"""The semantics of windows, triggers and timers, without a clock. Beam's WindowFns decide."""
