"""What Beam's model gives for a random pipeline that streams: computed in memory, event by event.

It shares no code with this package. Where the model leaves something open, it does as
``docs/streaming_semantics.md`` says: a bundle is what arrives together, a trigger is asked once
for it, and all that follows from an event has happened before the next one.
"""
