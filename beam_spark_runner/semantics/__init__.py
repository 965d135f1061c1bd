"""The semantics of windows, triggers and timers, without a clock. WindowFns are Beam's objects."""
