"""Which images meet in which batch: pure functions from labels, a seed and an epoch to an array of image numbers.

Words: a class with n images has m = ⌈n / K⌉ *chunks* of K images, a *visit* shows one chunk, a batch is P visits to
different classes. A random order is the ranking of a hash of (seed, purpose, …), so it needs no state and is the same
on every machine and with every version of numpy.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

# What a random order is for; equal numbers would tie unrelated choices together.
_CLASSES, _IMAGES, _SPARE = range(1, 4)


@dataclass(frozen=True)
class ClassMembers:
    """Image numbers sorted by class: those of class c are ``images[start[c] : start[c] + counts[c]]``."""

    images: np.ndarray
    counts: np.ndarray

    @property
    def start(self) -> np.ndarray:
        return np.cumsum(self.counts) - self.counts

    def __len__(self) -> int:
        return len(self.counts)


def by_label(labels: np.ndarray, *, min_images: int = 1) -> ClassMembers:
    """The classes with at least ``min_images`` images, in the order of their labels."""
    _, number, counts = np.unique(labels, return_inverse=True, return_counts=True)
    keep = counts >= min_images
    order = np.argsort(number, kind="stable")
    return ClassMembers(order[keep[number[order]]], counts[keep])


def scramble(seed: int, *keys: int | np.ndarray) -> np.ndarray:
    """A hash of whole numbers to 64 uniform bits, element by element: add a key, mix as splitmix64 does, repeat."""
    with np.errstate(over="ignore"):
        x = np.uint64(seed % 2**64)
        for key in keys:
            x = (x + np.asarray(key).astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x = x ^ (x >> np.uint64(31))
    return np.asarray(x)


def shuffled(items: np.ndarray, seed: int, *key: int) -> np.ndarray:
    """``items`` in an order that depends on their number, the seed and the key alone."""
    return items[np.argsort(scramble(seed, *key, np.arange(len(items))), kind="stable")]


def chunks(
    classes: ClassMembers, size: int, start: np.ndarray, count: np.ndarray, seed: int, epoch: np.ndarray
) -> np.ndarray:
    """Of the endless sequence of every class, the chunks ``start[c]`` … ``start[c] + count[c]``: (Σ count, size).

    The sequence of a class is made of rounds; each is a new order of its images, cut into m chunks. The last chunk of a
    round is completed with the first images of the round, so nothing comes twice before everything has come once, and
    no image is twice in a chunk unless the class has fewer than ``size``. ``epoch[c]`` picks one of many such
    sequences."""
    n = classes.counts
    m = -(-n // size)
    first = start // m
    rounds = np.where(count > 0, (start + count - 1) // m - first + 1, 0)
    owner = np.repeat(np.arange(len(n)), rounds)  # of every round
    length = n[owner]
    row = np.repeat(np.arange(len(owner)), length)  # of every image of every round
    image = classes.images[classes.start[owner][row] + _within(length)]
    key = scramble(seed, _IMAGES, epoch[owner][row], (_within(rounds) + first[owner])[row], image)
    image = image[np.lexsort((key, row))]
    c = np.repeat(np.arange(len(n)), count)  # of every chunk asked for
    number = start[c] + _within(count)
    chunk_row = (np.cumsum(rounds) - rounds - first)[c] + number // m[c]
    inside = ((number % m[c])[:, None] * size + np.arange(size)) % n[c][:, None]
    return image[(np.cumsum(length) - length)[chunk_row][:, None] + inside]


def visits_by_image(counts: np.ndarray, per_batch: int, size: int, seed: int, epoch: int) -> np.ndarray:
    """How often each class is visited in an epoch that shows every image once: m times, and at most once a batch.

    There are B = ⌈Σ m / P⌉ batches. Places that are left over, because Σ m is no multiple of P or because a class has
    more than B chunks, go to the classes with the fewest visits.
    """
    needed = -(-counts // size)
    batches = -(-int(needed.sum()) // per_batch)
    visits = np.minimum(needed, batches)
    while (spare := batches * per_batch - int(visits.sum())) > 0:
        room = np.flatnonzero(visits < batches)
        fewest = room[visits[room] == visits[room].min()]
        visits[shuffled(fewest, seed, _SPARE, epoch, spare)[:spare]] += 1
    return visits


def spread(visits: np.ndarray, per_batch: int, seed: int, epoch: int) -> np.ndarray:
    """Deal the visits to batches, (B, P) classes: none twice in a batch, those of a class evenly over the epoch.

    Visit i of v falls at a random moment of [i/v, (i+1)/v). With classes of one size these are rounds: every class
    comes before any comes again. Taking P at a time, a class that is already in the batch waits for the next; a class
    with as many visits left as there are batches may not wait, which is all it takes to come out even at the end.
    """
    batches = int(visits.sum()) // per_batch
    classes, number = np.repeat(np.arange(len(visits)), visits), _within(visits)
    moment = (number + scramble(seed, _CLASSES, epoch, classes, number) / 2.0**64) / visits[classes]
    queue = deque(classes[np.argsort(moment, kind="stable")].tolist())
    left, early = visits.copy(), [0] * len(visits)  # early: visits made before their turn in the queue
    plan = np.empty((batches, per_batch), np.int64)
    for b in range(batches):
        batch = np.flatnonzero(left == batches - b).tolist()
        for c in batch:
            early[c] += 1
        taken, waiting = set(batch), []
        while len(batch) < per_batch:
            c = queue.popleft()
            if early[c]:
                early[c] -= 1
            elif c in taken:
                waiting.append(c)
            else:
                batch.append(c)
                taken.add(c)
        queue.extendleft(reversed(waiting))
        left[batch] -= 1
        plan[b] = batch
    return plan


def balanced(classes: ClassMembers, per_batch: int, size: int, seed: int, epoch: int) -> np.ndarray:
    """The batches of an epoch, (B, P, K) image numbers. See ``ClassBalanced`` for the rules."""
    n = classes.counts
    visits = visits_by_image(n, per_batch, size, seed, epoch)
    whole = visits * size >= n
    # A class that is shown whole is shuffled again every epoch; a larger one continues where it stopped.
    visited = chunks(classes, size, np.where(whole, 0, epoch * visits), visits, seed, np.where(whole, 1 + epoch, 0))
    return visited[_places(spread(visits, per_batch, seed, epoch))]


def around_anchors(
    classes: ClassMembers, neighbours: np.ndarray, anchors: int, group: int, size: int, seed: int, epoch: int
) -> np.ndarray:
    """The batches of an epoch, (B, anchors · group, K): each anchor class with its ``group`` − 1 nearest other classes.

    Anchors go round in a random order, each class before any again; one that is in the batch already waits for the
    next."""
    per_batch = anchors * group
    batches = -(-int((-(-classes.counts // size)).sum()) // per_batch)
    order = np.empty((batches, per_batch), np.int64)
    queue: list[int] = []
    for b in range(batches):
        batch: list[int] = []
        while (room := per_batch - len(batch)) > 0:
            if all(c in batch for c in queue):
                queue += shuffled(np.arange(len(classes)), seed, _CLASSES, epoch, b).tolist()
            anchor = queue.pop(next(i for i, c in enumerate(queue) if c not in batch))
            near = [c for c in neighbours[anchor].tolist() if c != anchor and c not in batch]
            batch += [anchor, *near[: min(group, room) - 1]]
        order[b] = batch
    visits = np.bincount(order.ravel(), minlength=len(classes))
    start = np.zeros_like(visits)
    return chunks(classes, size, start, visits, seed, start + 1 + epoch)[_places(order)]


def in_order(n: int, batch_size: int) -> list[np.ndarray]:
    """0 … n − 1 in batches, the last one smaller."""
    return [np.arange(i, min(n, i + batch_size)) for i in range(0, n, batch_size)]


def _within(lengths: np.ndarray) -> np.ndarray:
    """0 … length − 1 for every length, one after the other."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


def _places(order: np.ndarray) -> np.ndarray:
    """Where each visit of ``order`` finds its chunk, when the chunks of every class are listed class by class."""
    places = np.empty(order.size, np.int64)
    places[np.argsort(order.ravel(), kind="stable")] = np.arange(order.size)
    return places.reshape(order.shape)
