"""Caches of what was computed once: activations of frozen networks, found by the contents of files."""
