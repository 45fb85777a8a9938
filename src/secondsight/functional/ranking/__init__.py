"""Pure functions behind retrieval metrics: similarities, ranks and counts."""
