"""From files to batches: decoding, transforms, samplers and the threads that run them."""
