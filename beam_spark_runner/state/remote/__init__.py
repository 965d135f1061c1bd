"""Keyed state in a state store that all hosts share: see ``keyed_shard``."""
