"""One file a signal. A probe only measures: it patches or listens, and emits events."""
