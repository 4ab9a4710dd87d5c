"""The deferred form of the sensors. Triggers only read, and never block the event loop."""
