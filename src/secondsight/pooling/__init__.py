"""Poolings: a set of local features (B, L, d) becomes one vector (B, D). ``build("jcf-32-8")`` makes any of them."""
