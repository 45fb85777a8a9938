"""What was computed once and is kept: activations of frozen networks, found by the contents of files."""
