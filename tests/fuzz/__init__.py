"""Structure-aware fuzzing of all that strangers send: see ``python -m tests.fuzz --help``."""
