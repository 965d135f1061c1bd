"""The cost of keys in a state store: ``python -m benchmarks.state_store``."""
