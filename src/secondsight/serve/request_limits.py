"""The limits on what a request may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Every bound of the server in one place."""

    upload: int = 20 << 20  # bytes of a body
    pixels: int = 50_000_000  # that an upload may claim to have
    waiting: int = 64  # requests that work or wait at a time; the next one is told to come back
    pictures: int = 32  # of these, pictures on their way through decoders and network
    arrival: float = 20.0  # seconds in which a request must arrive
    working: float = 60.0  # seconds that it may be worked on
    decoding: float = 10.0  # seconds for one picture; then its decoder is ended
    memory: int = 3 << 30  # bytes of address space a decoder
    decoders: int = 2
    batch: int = 16  # pictures that the network takes at a time
    kept: int = 96  # pictures whose features are kept
    hits: int = 10_000
    retry: int = 1  # seconds after which to come back
