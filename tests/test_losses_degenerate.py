"""Batches with nothing to learn, or with vectors that overflow: finite numbers, or an error that names the cure."""

from __future__ import annotations

import pytest
import torch

from secondsight.errors import ConfigError, DataError, ShapeError
from secondsight.losses import LOSSES, build

DIM, CLASSES = 12, 8
NEEDS_NEGATIVES = sorted(name for name, loss in LOSSES.items() if loss.expects.classes > 1)


def run(name: str, z: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = build(name, dim=z.shape[1], classes=CLASSES)
    z = z.clone().requires_grad_()
    value = loss(z, labels)
    value.backward()
    assert z.grad is not None
    assert value.shape == ()
    assert value.isfinite()
    assert z.grad.isfinite().all()
    return value.detach(), z.grad


def labels_of(images: int) -> torch.Tensor:
    return torch.arange(16) // images


@pytest.mark.parametrize("name", LOSSES)
def test_no_positive_pair(name):
    value, grad = run(name, torch.randn(8, DIM), labels_of(1)[:8])
    if name in ("triplet", "semihard", "lifted", "histogram", "margin", "smooth-ap", "htl", "multi-similarity"):
        assert value == 0
        assert not grad.any()


@pytest.mark.parametrize("name", LOSSES)
def test_one_class_in_the_batch(name):
    z, labels = torch.randn(6, DIM), torch.full((6,), 3)
    if name in NEEDS_NEGATIVES:
        with pytest.raises(DataError, match=r"all 6 images of the batch have label 3.*at least 2 classes"):
            run(name, z, labels)
    else:
        run(name, z, labels)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_all_images_the_same(name, dtype):
    _, grad = run(name, torch.randn(1, DIM, dtype=dtype).expand(16, -1), labels_of(2))
    assert grad.abs().max() < 100


@pytest.mark.parametrize("name", LOSSES)
def test_some_images_the_same(name):
    z = torch.randn(16, DIM)
    z[1::2] = z[::2]
    z[5] = z[2]  # also across classes
    run(name, z, labels_of(2))


@pytest.mark.parametrize("name", LOSSES)
def test_a_zero_vector(name):
    z = torch.randn(16, DIM)
    z[3] = 0
    _, grad = run(name, z, labels_of(2))
    assert grad[3].abs().max() < 100


@pytest.mark.parametrize("name", LOSSES)
def test_all_zero(name):
    run(name, torch.zeros(16, DIM), labels_of(2))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("scale", [1e-20, 1e20, 1e37])
def test_vectors_of_any_length(name, scale):
    if name == "npair" and scale > 1:
        with pytest.raises(DataError, match=r"too large for dot products.*lower the learning rate"):
            run(name, torch.randn(16, DIM) * scale, labels_of(2))
    else:
        run(name, torch.randn(16, DIM) * scale, labels_of(2))


@pytest.mark.parametrize("name", LOSSES)
def test_opposite_vectors(name):
    z = torch.randn(1, DIM).expand(16, -1) * torch.tensor([1.0, -1.0]).repeat(8)[:, None]
    run(name, z, labels_of(2))


@pytest.mark.parametrize("name", LOSSES)
def test_very_uneven_classes(name):
    run(name, torch.randn(16, DIM), torch.tensor([0] * 13 + [1, 2, 2]))


@pytest.mark.parametrize("name", NEEDS_NEGATIVES)
def test_one_image(name):
    with pytest.raises(DataError, match="at least 2 classes"):
        run(name, torch.randn(1, DIM), torch.tensor([0]))


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_embeddings_are_computed_in_single(name):
    z, labels = torch.randn(16, DIM), labels_of(2)
    loss = build(name, dim=DIM, classes=CLASSES).eval()
    half = loss(z.bfloat16(), labels)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, loss(z.bfloat16().float(), labels))


@pytest.mark.parametrize("name", LOSSES)
def test_labels_may_be_of_any_integer_type(name):
    z = torch.randn(16, DIM)
    loss = build(name, dim=DIM, classes=CLASSES).eval()
    torch.testing.assert_close(loss(z, labels_of(2).int()), loss(z, labels_of(2)))


@pytest.mark.parametrize("name", LOSSES)
def test_shapes_that_do_not_fit_are_named(name):
    loss = build(name, dim=DIM, classes=CLASSES)
    with pytest.raises(ShapeError, match=rf"expected embeddings \(batch, {DIM}\), got \(4, {DIM + 1}\)"):
        loss(torch.randn(4, DIM + 1), torch.tensor([0, 0, 1, 1]))


@pytest.mark.parametrize("name", ["proxy-nca", "proxy-anchor", "margin", "htl"])
@pytest.mark.parametrize("label", [CLASSES, -1])
def test_labels_outside_the_table_of_classes_are_named(name, label):
    with pytest.raises(DataError, match=rf"0…{CLASSES - 1}.*number the training classes from 0"):
        build(name, dim=DIM, classes=CLASSES)(torch.randn(3, DIM), torch.tensor([0, 0, label]))


@pytest.mark.parametrize("name", ["proxy-nca", "proxy-anchor"])
def test_a_training_set_of_one_class_is_an_error_before_training(name):
    with pytest.raises(ConfigError, match="at least 2 classes"):
        build(name, dim=DIM, classes=1)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_loss_that_says_what_collapse_costs_says_the_truth(name):
    loss = build(name, dim=8, classes=4)
    if loss.collapsed is None:
        assert name not in ("triplet", "semihard")
        return
    z = torch.randn(8).expand(12, 8)
    assert loss(z, torch.arange(12) % 4).item() == pytest.approx(loss.collapsed, rel=1e-4)
