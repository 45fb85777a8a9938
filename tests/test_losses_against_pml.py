"""Where pytorch-metric-learning computes the same thing, the numbers and the gradients agree."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners
from pytorch_metric_learning.distances import CosineSimilarity, DotProductSimilarity

from secondsight.functional.losses.pairs import unit
from secondsight.functional.losses.triplets import mine_semihard
from secondsight.losses import build

# Theirs indexes with lists in the histogram loss, which torch will read otherwise one day.
pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")

CLASSES, IMAGES, DIM = 6, 6, 10


def batch(images: int = IMAGES) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(CLASSES).repeat_interleave(images)
    return torch.randn(len(labels), DIM, dtype=torch.float64, requires_grad=True), labels


def assert_agree(ours, theirs, z, *, rtol=1e-9):
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=1e-12, check_dtype=False)
    (grad,), (expected,) = torch.autograd.grad(ours, z), torch.autograd.grad(theirs, z)
    torch.testing.assert_close(grad, expected, rtol=100 * rtol, atol=rtol)


def made(name: str, **options):
    return build(name, dim=DIM, classes=CLASSES, **options)


def test_triplet_is_the_average_over_the_active_ones_of_all_triplets():
    z, labels = batch()
    theirs = pml.TripletMarginLoss(margin=0.1, distance=CosineSimilarity())
    assert_agree(made("triplet")(z, labels), theirs(z, labels), z)


def test_all_semihard_triplets_are_those_of_the_cubic_miner():
    z, labels = batch()
    miner = miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard", distance=CosineSimilarity())
    theirs = pml.TripletMarginLoss(margin=0.2, distance=CosineSimilarity())
    ours = made("semihard", negatives="all", margin=0.2)
    assert_agree(ours(z, labels), theirs(z, labels, miner(z, labels)), z)


def test_the_mined_negative_is_the_hardest_of_the_cubic_miners_semihard_ones():
    z, labels = batch()
    u = unit(z.detach())
    s = u @ u.T
    hardest = {}
    theirs = miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard", distance=CosineSimilarity())(u, labels)
    for a, p, n in zip(*(t.tolist() for t in theirs), strict=True):
        if (a, p) not in hardest or s[a, n] > s[a, hardest[a, p]]:
            hardest[a, p] = n
    ours = mine_semihard(u, labels, margin=0.2)
    assert {(a, p): n for a, p, n in zip(*(t.tolist() for t in ours), strict=True)} == hardest


def test_lifted_agrees_without_its_positive_by_negative_table():
    z, labels = batch()
    assert_agree(made("lifted", radius=1.0)(z, labels), pml.LiftedStructureLoss()(z, labels), z)


def test_histogram_agrees_where_theirs_does_not_crash():
    z, labels = batch()
    assert_agree(
        made("histogram")(z, labels), pml.HistogramLoss(n_bins=100)(z, labels), z, rtol=1e-6
    )  # theirs finds the bin in float32


def test_theirs_crashes_on_two_equal_images_and_ours_does_not():
    z, labels = torch.eye(4)[[0, 0, 1, 2]], torch.tensor([0, 0, 1, 1])
    with pytest.raises(RuntimeError, match="out of bounds"):
        pml.HistogramLoss(n_bins=100)(z, labels)
    assert build("histogram", dim=4, classes=2)(z, labels).isfinite()


def test_npair_with_one_pair_a_class_agrees():
    z, labels = batch()
    theirs = pml.NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=False))
    assert_agree(made("npair", pairs="one", l2=0)(z, labels), theirs(z, labels), z)


def test_theirs_looks_at_two_images_a_class_and_ours_at_all():
    z, labels = batch()
    theirs = pml.NPairsLoss(distance=DotProductSimilarity(normalize_embeddings=False))
    (seen,) = torch.autograd.grad(theirs(z, labels), z)
    assert (seen.abs().sum(1) > 0).sum() == 2 * CLASSES
    (seen,) = torch.autograd.grad(made("npair")(z, labels), z)
    assert (seen.abs().sum(1) > 0).all()


def test_margin_agrees_on_the_same_triplets():
    z, labels = batch()
    ours = made("margin").eval()
    theirs = pml.MarginLoss(margin=0.2, beta=1.2)
    assert_agree(ours(z, labels), theirs(z, labels, ours._draw(unit(z.detach()), labels)), z)


def test_one_near_pair_of_negatives_leaves_their_sampling_with_two_anchors_and_ours_with_all():
    labels = torch.arange(32) // 4
    u = unit(torch.randn(8, 512)[labels] + torch.randn(32, 512) + torch.randn(512))
    u[0] = unit(u[4] + 0.4 * u[0])
    (theirs, _, _) = miners.DistanceWeightedMiner()(u, labels)
    assert set(theirs.tolist()) == {0, 4}
    (ours, _, _) = build("margin", dim=512, classes=8)._draw(u, labels)
    assert set(ours.tolist()) == set(range(32))


def test_proxy_nca_is_theirs_without_the_positive_in_the_denominator():
    z, labels = batch()
    ours = made("proxy-nca", scale=1).double()
    theirs = pml.ProxyNCALoss(CLASSES, DIM)
    theirs.proxies.data = ours.weight.data.clone()
    d = theirs.distance(z, theirs.proxies)
    own = d.gather(1, labels[:, None]).squeeze(1)
    with_positive = (own + (-d).logsumexp(1)).mean()
    torch.testing.assert_close(theirs(z, labels), with_positive)
    without = (own + (-d).scatter(1, labels[:, None], -torch.inf).logsumexp(1)).mean()
    assert_agree(ours(z, labels), without, z)
    assert ours(z, labels) < theirs(z, labels)


def test_smooth_ap_agrees_where_images_a_class_equal_classes():
    z, labels = batch(images=CLASSES)
    assert_agree(made("smooth-ap")(z, labels), pml.SmoothAPLoss()(z, labels), z, rtol=1e-6)  # theirs adds up in float32


def test_theirs_is_wrong_for_any_other_batch():
    z, labels = batch(images=3)
    assert made("smooth-ap")(z, labels).item() != pytest.approx(pml.SmoothAPLoss()(z, labels).item(), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("contrastive", pml.ContrastiveLoss()),
        ("multi-similarity", pml.MultiSimilarityLoss()),
    ],
)
def test_adapters_change_nothing_but_the_normalisation(name, theirs):
    z, labels = batch()
    mined = miners.MultiSimilarityMiner()(z, labels) if name == "multi-similarity" else None
    assert_agree(made(name)(z, labels), theirs(z, labels, mined), z)


def test_proxy_anchor_is_theirs():
    z, labels = batch()
    ours, theirs = made("proxy-anchor"), pml.ProxyAnchorLoss(CLASSES, DIM)
    theirs.proxies.data = ours.weight.data.clone()
    assert_agree(ours(z, labels), theirs(z, labels), z)
