"""Keyed state and timers: what stages keep between elements and bundles. See ``backend``."""
