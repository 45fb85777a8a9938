"""HTL's class tree: distances from class means, merging at rising thresholds, margins, neighbours."""

from __future__ import annotations

import pytest
import torch

from secondsight.functional.losses import class_tree
from secondsight.functional.losses.pairs import unit
from secondsight.losses import build
from secondsight.losses.hierarchical import HTL


def points(classes: int = 5, images: int = 6, dim: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(classes).repeat(images)
    return torch.randn(len(labels), dim, dtype=torch.float64), labels


def statistics(z, labels, classes=5):
    means, counts = class_tree.class_means([(z[:7], labels[:7]), (z[7:], labels[7:])], classes=classes, dim=z.shape[1])
    return means, counts


def test_class_distances_are_mean_squared_distances_of_all_pairs():
    z, labels = points()
    means, counts = statistics(z, labels)
    d = class_tree.class_distances(means, counts > 0)
    u = unit(z)
    for p in range(5):
        for q in range(5):
            if p != q:
                expected = torch.cdist(u[labels == p], u[labels == q]).square().mean()
                torch.testing.assert_close(d[p, q], expected)


def test_spreads_are_mean_squared_distances_inside_a_class():
    z, labels = points()
    spreads = class_tree.class_spreads(*statistics(z, labels))
    u = unit(z)
    for c in range(5):
        inside = torch.cdist(u[labels == c], u[labels == c]).square().sum() / (6 * 5)
        torch.testing.assert_close(spreads[c], inside)


def test_thresholds_go_from_the_mean_spread_to_the_largest_distance():
    spreads, counts = torch.tensor([0.2, 0.4, 0.0]), torch.tensor([5, 5, 1])  # a single image has no spread to count
    torch.testing.assert_close(
        class_tree.level_thresholds(spreads, counts, levels=4),
        torch.tensor([0.3, 0.3 + 3.7 / 4, 0.3 + 3.7 / 2, 0.3 + 3 * 3.7 / 4, 4.0]),
    )


def test_merging_is_transitive_and_ends_in_one_node():
    d = torch.tensor([[0.0, 1.0, 1.9, 3.5], [1.0, 0.0, 1.0, 3.5], [1.9, 1.0, 0.0, 3.5], [3.5, 3.5, 3.5, 0.0]])
    thresholds = torch.tensor([0.5, 1.5, 2.5, 4.0])
    nodes = class_tree.merge_classes(d, thresholds)
    groups = [len(set(level.tolist())) for level in nodes]
    assert groups == [4, 2, 2, 1]
    assert nodes[1][0] == nodes[1][2]  # 0 and 2 are 1.9 apart, but 1 joins them
    merging = class_tree.merging_distance(nodes, thresholds, torch.tensor([0, 0]), torch.tensor([0, 1, 2, 3]))
    torch.testing.assert_close(merging[0], torch.tensor([0.5, 1.5, 1.5, 4.0]))


def test_the_tree_is_the_connected_components_of_each_threshold():
    d = torch.rand(12, 12).mul(4)
    d = (d + d.T).div(2).fill_diagonal_(0)
    thresholds = torch.linspace(0.3, 4, 9)
    nodes = class_tree.merge_classes(d, thresholds)
    for level, threshold in zip(nodes[:-1], thresholds, strict=False):
        reach = d < threshold
        for _ in range(12):
            reach = (reach.float() @ reach.float()) > 0
        assert torch.equal(level[:, None] == level[None, :], reach)


def tree_of(z, labels, classes=5, **options) -> HTL:
    loss = build("htl", dim=z.shape[1], classes=classes, **options)
    assert isinstance(loss, HTL)
    loss.on_epoch([(z, labels)])
    return loss


def test_without_a_tree_the_margin_is_beta():
    loss = build("htl", dim=4, classes=5)
    assert isinstance(loss, HTL)
    classes = torch.arange(5)
    torch.testing.assert_close(loss.margins(classes, classes), torch.full((5, 5), 0.1))


def test_margins_are_wider_between_classes_that_merge_late():
    axes = torch.eye(4, dtype=torch.float64)
    centres = torch.stack([axes[0], unit(axes[0] + 0.2 * axes[1]), axes[2], -axes[2]])
    labels = torch.arange(4).repeat(5)
    loss = tree_of(centres[labels] + 0.02 * torch.randn(20, 4, dtype=torch.float64), labels, classes=4)
    classes = torch.arange(4)
    margins = loss.margins(classes, classes)
    assert margins[0, 1] < margins[0, 2] <= margins[0, 3]
    level = 1 / 16 * (4 - loss.thresholds[0]) + loss.thresholds[0]
    torch.testing.assert_close(margins[0, 1], 0.1 + level - loss.spreads[0])


def test_neighbours_are_the_nearest_classes_nearest_first():
    z, labels = points()
    loss = tree_of(z, labels, nearest=3)
    means, counts = statistics(z, labels)
    d = class_tree.class_distances(means, counts > 0)
    for c in range(5):
        expected = [q for q in d[c].argsort().tolist() if q != c][:3]
        assert loss.neighbours[c].tolist() == expected


def test_a_new_epoch_replaces_the_tree_and_the_state_restores_it():
    loss = tree_of(*points())
    before = {key: value.clone() for key, value in loss.state_dict().items()}
    loss.on_epoch([points()])
    assert not torch.equal(loss.spreads, before["spreads"])
    other = build("htl", dim=4, classes=5)
    other.load_state_dict(before)
    z, labels = points()
    restored = other(z, labels)
    loss.load_state_dict(before)
    assert restored == loss(z, labels)


def test_classes_without_images_and_classes_with_one_stay_harmless():
    z, labels = points(classes=3)
    z, labels = torch.cat([z, z[:1]]), torch.cat([labels, torch.tensor([4])])  # class 3 is empty, class 4 has one image
    loss = tree_of(z, labels)
    assert all(value.isfinite().all() for value in loss.state_dict().values())
    assert loss.spreads[3] == loss.spreads[4] == 0
    assert sorted(loss.neighbours[0, :3].tolist()) == [1, 2, 4]
    assert loss.neighbours[0, 3] == -1  # there is no fourth
    z.requires_grad_()
    loss(z, labels).backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_a_tree_of_one_image_a_class_or_of_two_classes_can_be_built():
    tree_of(torch.randn(5, 4), torch.arange(5))
    assert tree_of(torch.randn(6, 4), torch.arange(6) % 2, classes=2).neighbours.tolist() == [[1], [0]]


@pytest.mark.parametrize("options", [{"levels": 0}, {"nearest": 0}])
def test_senseless_options_are_refused(options):
    with pytest.raises(ValueError, match="at least 1"):
        build("htl", dim=4, classes=5, **options)
