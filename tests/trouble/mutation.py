"""Something wrong with some bytes: the same wrong for the same chance."""

from __future__ import annotations

import random
from collections.abc import Sequence

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutate(content: bytes, others: Sequence[bytes], chance: random.Random, *, most: int = 6) -> bytes:
    """``content`` after one or more accidents; ``others`` are what pieces may come from."""
    data = bytearray(content)
    for _ in range(chance.randint(1, most)):
        chance.choice(ACCIDENTS)(data, others, chance)
    return bytes(data)


def _flip(data: bytearray, others: Sequence[bytes], chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 1, 8, 64))):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _number(data: bytearray, others: Sequence[bytes], chance: random.Random) -> None:
    """A length, an offset or a size becomes an extreme one; headers, at the start, are hit most often."""
    size = chance.choice((1, 2, 4, 8))
    where = chance.randrange(max(1, min(len(data), chance.choice((64, 512, 1 << 30)))))
    value = chance.choice(EXTREMES) & ((1 << (8 * size)) - 1)
    data[where : where + size] = value.to_bytes(size, chance.choice(("little", "big")))


def _cut(data: bytearray, others: Sequence[bytes], chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _remove(data: bytearray, others: Sequence[bytes], chance: random.Random) -> None:
    start = chance.randrange(len(data) + 1)
    del data[start : start + chance.choice((1, 2, 16, 256))]


def _repeat(data: bytearray, others: Sequence[bytes], chance: random.Random) -> None:
    start = chance.randrange(len(data) + 1)
    piece = bytes(data[start : start + chance.choice((1, 4, 64, 1024))])
    data[start:start] = piece * chance.choice((1, 2, 20))


def _insert(data: bytearray, others: Sequence[bytes], chance: random.Random) -> None:
    start = chance.randrange(len(data) + 1)
    data[start:start] = chance.randbytes(chance.choice((1, 2, 16, 300)))


def _splice(data: bytearray, others: Sequence[bytes], chance: random.Random) -> None:
    if others:
        other = chance.choice(others)
        start, length = chance.randrange(len(other) + 1), chance.choice((4, 32, 500))
        where = chance.randrange(len(data) + 1)
        data[where : where + length] = other[start : start + length]


def _blank(data: bytearray, others: Sequence[bytes], chance: random.Random) -> None:
    start = chance.randrange(len(data) + 1)
    length = min(len(data) - start, chance.choice((1, 16, 512)))
    data[start : start + length] = bytes([chance.choice((0, 0xFF, 0x20))]) * length


ACCIDENTS = (_flip, _flip, _number, _number, _cut, _remove, _repeat, _insert, _splice, _blank)
