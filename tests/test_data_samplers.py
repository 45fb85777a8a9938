"""P×K batches use every class and image before repeating, whatever the class sizes, processes and interruptions."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from secondsight.data.loading.batch_plan import shuffled
from secondsight.data.loading.neighbours import Neighbours
from secondsight.data.loading.samplers import ClassBalanced, Sequential
from secondsight.errors import ConfigError, DataError, RunError


@st.composite
def tasks(draw):
    """Labels in any order with class sizes from one image up, and P, K, seed, epoch that fit them."""
    sizes = draw(st.lists(st.integers(1, 12) | st.integers(1, 90), min_size=1, max_size=14))
    labels = np.repeat(draw(st.permutations(range(3, 3 + len(sizes)))), sizes)
    labels = np.random.default_rng(draw(st.integers(0, 99))).permutation(labels)
    p, k = draw(st.integers(1, len(sizes))), draw(st.integers(1, 6))
    return labels, p, k, draw(st.integers(0, 2**32)), draw(st.integers(0, 50))


def batches_of(sampler, epoch: int) -> list[np.ndarray]:
    sampler.turn_to(epoch)
    return [sampler[b] for b in range(len(sampler))]


@given(tasks())
@settings(max_examples=50, deadline=None)
def test_every_batch_has_p_different_classes_with_k_images_each(task):
    labels, p, k, seed, epoch = task
    sizes = Counter(labels.tolist())
    for batch in batches_of(ClassBalanced(labels, p, k, seed=seed), epoch):
        assert batch.shape == (p * k,)
        groups = labels[batch].reshape(p, k)
        assert (groups == groups[:, :1]).all()
        assert len(set(groups[:, 0])) == p
        for images in batch.reshape(p, k):
            # different images where there are enough; otherwise each as often as the others, to one
            counts = Counter(images.tolist()).values()
            assert len(counts) == min(k, sizes[labels[images[0]]])
            assert max(counts) - min(counts) <= 1


@given(tasks())
@settings(max_examples=50, deadline=None)
def test_an_epoch_shows_every_image_before_any_is_repeated(task):
    labels, p, k, seed, epoch = task
    batches = batches_of(ClassBalanced(labels, p, k, seed=seed), epoch)
    sizes = Counter(labels.tolist())
    assert len(batches) == -(-sum(-(-n // k) for n in sizes.values()) // p)
    for label, n in sizes.items():
        shown = [i for batch in batches for i in batch[labels[batch] == label].tolist()]
        assert len(shown) > 0
        if -(-n // k) <= len(batches):
            assert set(shown[:n]) == set(np.flatnonzero(labels == label).tolist())


@given(tasks())
@settings(max_examples=40, deadline=None)
def test_repeats_are_few_when_no_class_is_larger_than_the_epoch(task):
    labels, p, k, seed, _ = task
    sizes = np.bincount(labels)
    sizes = sizes[sizes > 0]
    sampler = ClassBalanced(labels, p, k, seed=seed)
    if (-(-sizes // k) <= len(sampler)).all():
        # at most K − 1 to fill the last chunk of each class, and P − 1 spare visits in the last batch
        extra = len(sampler) * p * k - len(labels)
        assert extra <= len(sizes) * (k - 1) + (p - 1) * k


@given(tasks(), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_a_class_that_does_not_fit_in_an_epoch_goes_on_in_the_next(task, epochs):
    labels, p, k, seed, _ = task
    sampler = ClassBalanced(labels, p, k, seed=seed)
    stream = np.concatenate([b for e in range(epochs) for b in batches_of(sampler, e)])
    for label in set(labels.tolist()):
        n = int((labels == label).sum())
        if -(-n // k) > len(sampler):
            shown = stream[labels[stream] == label]
            chunks = -(-n // k)
            for start in range(0, len(shown) - chunks * k + 1, chunks * k):  # whole rounds
                assert len(set(shown[start : start + chunks * k].tolist())) == n


@pytest.mark.parametrize(("classes", "p"), [(100, 32), (100, 25), (7, 3), (5, 5)])
def test_with_classes_of_one_size_all_come_before_any_comes_again(classes, p):
    labels = np.repeat(np.arange(classes), 20)
    order = np.concatenate([labels[b[::2]] for b in batches_of(ClassBalanced(labels, p, 2, seed=3), 0)])
    for start in range(0, len(order) - classes + 1, classes):
        # where a batch lies across the end of a round, a class may swap with one of the next round
        assert len(set(order[start : start + classes].tolist())) >= classes - p + 1
    visits = np.bincount(order)
    assert visits.max() - visits.min() <= 1


def test_a_class_meets_nearly_all_other_classes_within_an_epoch():
    labels = np.repeat(np.arange(100), 59)
    met = np.zeros((100, 100), bool)
    for batch in batches_of(ClassBalanced(labels, 32, 2), 0):
        here = labels[batch[::2]]
        met[np.ix_(here, here)] = True
    assert met.mean() > 0.99


def test_epochs_and_seeds_give_other_batches_and_the_same_ones_when_asked_again():
    labels = np.repeat(np.arange(20), 10)
    first = np.stack(batches_of(ClassBalanced(labels, 4, 2, seed=1), 5))
    again = np.stack(batches_of(ClassBalanced(labels, 4, 2, seed=1), 5))
    np.testing.assert_array_equal(first, again)
    for seed, epoch in [(1, 6), (2, 5)]:
        assert not np.array_equal(first, np.stack(batches_of(ClassBalanced(labels, 4, 2, seed=seed), epoch)))


def test_images_of_a_class_are_paired_anew_every_epoch():
    labels = np.repeat(np.arange(4), 30)
    sampler = ClassBalanced(labels, 2, 2)
    pairs = [
        {tuple(sorted(pair)) for batch in batches_of(sampler, epoch) for pair in batch.reshape(-1, 2).tolist()}
        for epoch in (0, 1)
    ]
    assert len(pairs[0] & pairs[1]) < 15


def test_single_image_classes_can_be_left_out():
    labels = np.array([0, 1, 1, 2, 2, 2, 3])
    batches = batches_of(ClassBalanced(labels, 2, 2, min_images=2), 0)
    assert set(np.concatenate(batches).tolist()) == {1, 2, 3, 4, 5}


# ---------------------------------------------------------------- several processes


@given(tasks(), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_processes_share_the_same_global_batches_without_overlap(task, world_size):
    labels, p, k, seed, epoch = task
    if p % world_size:
        return
    whole = batches_of(ClassBalanced(labels, p, k, seed=seed), epoch)
    parts = [
        batches_of(ClassBalanced(labels, p, k, seed=seed, rank=r, world_size=world_size), epoch)
        for r in range(world_size)
    ]
    for b, batch in enumerate(whole):
        np.testing.assert_array_equal(np.concatenate([part[b] for part in parts]), batch)
        assert all(set(labels[x[b]]).isdisjoint(labels[y[b]]) for x, y in itertools.combinations(parts, 2))


@given(st.integers(0, 60), st.integers(1, 13), st.integers(1, 4))
def test_plain_batches_cover_everything_once_in_order_whatever_the_number_of_processes(n, batch_size, world_size):
    parts = [batches_of(Sequential(n, batch_size, rank=r, world_size=world_size), 0) for r in range(world_size)]
    assert {len(part) for part in parts} == {-(-n // batch_size)}
    together = [np.concatenate(batch) for batch in zip(*parts, strict=True)]
    flat = np.concatenate([*together, np.empty(0, int)])
    assert flat.tolist() == list(range(n))
    assert all(len(batch) == batch_size for batch in together[:-1])


# ---------------------------------------------------------------- interruptions


def samplers():
    labels = np.repeat(np.arange(12), 7)
    table = np.stack([np.roll(np.arange(12), -c) for c in range(12)])
    return [
        lambda **o: Sequential(50, 7, **o),
        lambda **o: ClassBalanced(labels, 4, 2, seed=1, **o),
        lambda **o: Neighbours(labels, table, anchors=2, group=2, images_per_class=2, seed=1, **o),
    ]


@pytest.mark.parametrize("make", samplers())
@pytest.mark.parametrize("stop", [0, 1, 3, "end"])
def test_a_position_goes_on_with_exactly_the_batches_that_were_left(make, stop):
    sampler = make()
    sampler.turn_to(2)
    everything = [batch.tolist() for batch in sampler]
    stop = len(everything) if stop == "end" else stop
    running = iter(sampler)
    done = [next(running).tolist() for _ in range(stop)]
    assert sampler.position == (stop or len(everything))  # a walk that has not begun changes nothing
    resumed = make()
    resumed.turn_to(2, stop)
    assert done + [batch.tolist() for batch in resumed] == everything
    assert [batch.tolist() for batch in resumed] == everything  # and the next time the whole epoch again


def test_a_position_can_be_restored_with_another_number_of_processes():
    make = samplers()[2]
    sampler = make()
    running = iter(sampler)
    next(running)
    parts = []
    for rank in range(2):
        part = make(rank=rank, world_size=2)
        part.turn_to(sampler.epoch, sampler.position)
        parts.append(list(part))
    for whole, *shares in zip(running, *parts, strict=True):
        np.testing.assert_array_equal(np.concatenate(shares), whole)


def test_looking_at_the_first_batch_does_not_use_it_up():
    sampler = Sequential(10, 2)
    next(iter(sampler))
    assert next(iter(sampler)).tolist() == [0, 1]


# ---------------------------------------------------------------- neighbours


def ring(classes: int) -> np.ndarray:
    """Class c is nearest to itself, then c + 1, then c − 1, then c + 2 …"""
    steps = sorted(range(-classes // 2 + 1, classes // 2 + 1), key=lambda s: (abs(s), -s))
    return np.array([[(c + s) % classes for s in steps] for c in range(classes)])


def test_every_anchor_comes_with_its_nearest_classes_and_every_class_is_anchor_before_any_is_again():
    labels = np.repeat(np.arange(30), 6)
    sampler = Neighbours(labels, ring(30), anchors=1, group=3, images_per_class=2)
    groups = [labels[batch[::2]] for batch in batches_of(sampler, 0)]
    assert len(groups) == 30
    assert sorted(g[0] for g in groups) == list(range(30))
    for anchor, *near in groups:
        assert set(near) == {(anchor + 1) % 30, (anchor - 1) % 30}


@given(tasks(), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_neighbour_batches_are_p_by_k_too(task, anchors, group):
    labels, _, k, seed, epoch = task
    labels = np.unique(labels, return_inverse=True)[1]
    classes = labels.max() + 1
    if anchors * group > classes:
        return
    table = np.stack([np.random.default_rng((seed, c)).permutation(classes) for c in range(classes)])
    sampler = Neighbours(labels, table, anchors=anchors, group=group, images_per_class=k, seed=seed)
    for batch in batches_of(sampler, epoch):
        groups = labels[batch].reshape(anchors * group, k)
        assert (groups == groups[:, :1]).all()
        assert len(set(groups[:, 0])) == anchors * group


def test_another_table_changes_the_batches_of_the_next_epoch_and_a_position_means_the_same_batch():
    labels = np.repeat(np.arange(10), 4)
    sampler = Neighbours(labels, ring(10), anchors=2, group=2, images_per_class=2)
    before = np.stack(list(sampler))
    sampler.set_neighbours(ring(10)[:, ::-1])
    after = np.stack(list(sampler))
    assert not np.array_equal(before, after)
    fresh = Neighbours(labels, ring(10), anchors=2, group=2, images_per_class=2)
    running = iter(sampler)
    next(running)
    fresh.set_neighbours(sampler.neighbours)
    fresh.turn_to(sampler.epoch, sampler.position)
    np.testing.assert_array_equal(np.stack(list(fresh)), after[1:])
    with pytest.raises(RunError, match="between epochs"):
        sampler.set_neighbours(ring(10))


@pytest.mark.parametrize("table", [np.zeros((3, 2), int), np.zeros((10, 0), int), np.full((10, 3), 10)])
def test_a_neighbour_table_that_does_not_fit_is_refused(table):
    with pytest.raises(ConfigError, match="Neighbours"):
        Neighbours(np.repeat(np.arange(10), 4), table, anchors=2, group=2, images_per_class=2)


# ---------------------------------------------------------------- mistakes, and the rest of the world


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda y: ClassBalanced(y, 6, 2), ConfigError, "lower classes_per_batch to 5"),
        (lambda y: ClassBalanced(y, 4, 2, rank=0, world_size=3), ConfigError, "shared equally by 3 processes; use 3"),
        (lambda y: ClassBalanced(y, 4, 2, rank=2, world_size=2), ConfigError, "rank 2 is not one of 2"),
        (lambda y: ClassBalanced(y, 4, 0), ConfigError, "images_per_class must be at least 1"),
        (lambda y: ClassBalanced(y, 0, 2), ConfigError, "classes_per_batch must be at least 1"),
        (lambda y: ClassBalanced(y, 5, 2, min_images=5), ConfigError, "there are 0 with 5 images or more"),
        (lambda y: ClassBalanced(y.astype(float), 2, 2), DataError, "whole numbers"),
        (lambda y: Sequential(10, 0), ConfigError, "batch_size must be at least 1"),
        (lambda y: Sequential(10, 5).turn_to(-1), ConfigError, "epoch must be 0 or more"),
    ],
)
def test_mistakes_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make(np.repeat(np.arange(5), 4))


def test_torch_data_loader_takes_them_as_batch_samplers():
    labels = np.repeat(np.arange(6), 4)
    data = TensorDataset(torch.arange(24))
    sampler = ClassBalanced(labels, 3, 2)
    from_torch = [batch.tolist() for (batch,) in DataLoader(data, batch_sampler=sampler)]
    assert from_torch == [batch.tolist() for batch in sampler]


def test_orders_are_uniform():
    places = np.stack([shuffled(np.arange(5), seed, 1) for seed in range(2000)])
    counts = np.stack([np.bincount(places[:, i], minlength=5) for i in range(5)])
    assert abs(counts - 400).max() < 90  # five standard deviations
    assert len({tuple(p) for p in places.tolist()}) == 120


def test_orders_never_change_between_versions():
    assert shuffled(np.arange(8), 42, 1, 2).tolist() == [7, 1, 4, 0, 3, 6, 5, 2]
