"""What a streaming pipeline commits, and which of several drivers may. Pure."""
