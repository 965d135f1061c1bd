"""Keyed state and timers, between elements and bundles. See ``backend``."""
