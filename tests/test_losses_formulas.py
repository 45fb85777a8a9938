"""Each loss against its formula written as loops, in float64."""

from __future__ import annotations

import math

import pytest
import torch

from secondsight.functional.losses.boosting import boosted, co_activation
from secondsight.losses import LOSSES, build

DIM, CLASSES = 8, 5


def batch(sizes: tuple[int, ...] = (3, 2, 4, 1, 2)) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels))]
    return torch.randn(len(labels), DIM, dtype=torch.float64), labels


def unit(z):
    return [row / row.norm() for row in z]


def cosines(z):
    u = unit(z)
    return [[float(a @ b) for b in u] for a in u]


def distances(z):
    u = unit(z)
    return [[float((a - b).norm()) for b in u] for a in u]


def positive_pairs(y):
    return [(i, j) for i in range(len(y)) for j in range(len(y)) if i != j and y[i] == y[j]]


def negative_pairs(y):
    return [(i, j) for i in range(len(y)) for j in range(len(y)) if y[i] != y[j]]


def triplets(y):
    return [(a, p, n) for a, p in positive_pairs(y) for n in range(len(y)) if y[n] != y[a]]


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def active_mean(values):
    return mean(v for v in values if v > 0)


def triplet(loss, z, y):
    s = cosines(z)
    return active_mean(s[a][n] - s[a][p] + loss.margin for a, p, n in triplets(y))


def semihard_all(loss, z, y):
    s = cosines(z)
    chosen = [(a, p, n) for a, p, n in triplets(y) if s[a][p] - loss.margin < s[a][n] < s[a][p]]
    return active_mean(s[a][n] - s[a][p] + loss.margin for a, p, n in chosen)


def semihard(loss, z, y):
    s, hinges = cosines(z), []
    for a, p in positive_pairs(y):
        negatives = [n for n in range(len(y)) if y[n] != y[a]]
        easier = [n for n in negatives if s[a][n] < s[a][p]]
        if easier:
            hinges.append(max(s[a][n] for n in easier) - s[a][p] + loss.margin)
        elif loss.fallback:
            hinges.append(min(s[a][n] for n in negatives) - s[a][p] + loss.margin)
    return active_mean(hinges)


def contrastive(loss, z, y):
    d = distances(z)
    return active_mean(d[i][j] for i, j in positive_pairs(y)) + active_mean(1.0 - d[i][j] for i, j in negative_pairs(y))


def lifted(loss, z, y):
    d, terms = [[loss.radius * entry for entry in row] for row in distances(z)], []
    for i, j in positive_pairs(y):
        pull = sum(math.exp(loss.margin - d[i][k]) for k in range(len(y)) if y[k] != y[i])
        pull += sum(math.exp(loss.margin - d[j][k]) for k in range(len(y)) if y[k] != y[j])
        terms.append(max(0.0, math.log(pull) + d[i][j]) ** 2)
    return mean(terms) / 2


def binomial(loss, z, y):
    s = cosines(z)

    def deviance(i, j, m):
        return math.log(1 + math.exp(-loss.alpha * (s[i][j] - loss.beta) * m))

    return mean(deviance(i, j, 1) for i, j in positive_pairs(y)) + mean(
        deviance(i, j, -loss.cost) for i, j in negative_pairs(y)
    )


def histogram(loss, z, y):
    s, step = cosines(z), 2 / loss.bins

    def density(pairs):
        h = [0.0] * (loss.bins + 1)
        for i, j in pairs:
            for r in range(loss.bins + 1):
                h[r] += max(0.0, 1 - abs(s[i][j] - (-1 + r * step)) / step) / len(pairs)
        return h

    positive, negative = density(positive_pairs(y)), density(negative_pairs(y))
    return sum(negative[r] * sum(positive[: r + 1]) for r in range(loss.bins + 1))


def npair(loss, z, y):
    if loss.length is not None:
        z = torch.stack([loss.length * row / math.sqrt(float(row @ row)) for row in z])
    terms = [
        math.log(1 + sum(math.exp(float(z[a] @ z[n] - z[a] @ z[p])) for n in range(len(y)) if y[n] != y[a]))
        for a, p in positive_pairs(y)
    ]
    return mean(terms) + loss.l2 * mean(float(row @ row) for row in z)


def npair_one(loss, z, y):
    pairs = []
    for c in sorted(set(y.tolist())):
        members = [i for i in range(len(y)) if y[i] == c]
        if len(members) > 1:
            pairs.append(members[:2])
    terms = [
        math.log(1 + sum(math.exp(float(z[a] @ z[q] - z[a] @ z[p])) for b, q in pairs if b != a)) for a, p in pairs
    ]
    return mean(terms) + loss.l2 * mean(float(row @ row) for row in z)


def margin(loss, z, y):
    d, beta = distances(z), loss.criterion.beta.tolist()
    u = torch.stack(unit(z))
    hinges = []
    for a, p, n in zip(*(t.tolist() for t in loss._draw(u, y)), strict=True):
        hinges += [d[a][p] - beta[y[a]] + 0.2, beta[y[a]] - d[a][n] + 0.2]
    return active_mean(hinges)


def proxy_nca(loss, z, y):
    x, p = unit(z * 1), unit(loss.weight.detach().double())
    terms = []
    for i, row in enumerate(x):
        d = [float((loss.scale * row - loss.scale * q).square().sum()) for q in p]
        others = sum(math.exp(-d[k]) for k in range(len(p)) if k != y[i])
        terms.append(-math.log(math.exp(-d[y[i]]) / others))
    return mean(terms)


def proxy_anchor(loss, z, y):
    x, proxies = unit(z), unit(loss.weight.detach().double())
    pull, push = [], []
    for c, q in enumerate(proxies):
        own = [float(q @ r) for i, r in enumerate(x) if y[i] == c]
        rest = [float(q @ r) for i, r in enumerate(x) if y[i] != c]
        if own:
            pull.append(math.log(1 + sum(math.exp(-32 * (s - 0.1)) for s in own)))
        push.append(math.log(1 + sum(math.exp(32 * (s + 0.1)) for s in rest)))
    return mean(pull) + mean(push)


def multi_similarity(loss, z, y):
    s, total = cosines(z), 0.0
    for i in range(len(y)):
        own = [s[i][j] for j in range(len(y)) if j != i and y[j] == y[i]]
        rest = [s[i][j] for j in range(len(y)) if y[j] != y[i]]
        near = [v for v in rest if own and v + 0.1 > min(own)]
        far = [v for v in own if v - 0.1 < max(rest)]
        if near and far:
            total += math.log(1 + sum(math.exp(-2 * (v - 0.5)) for v in far)) / 2
            total += math.log(1 + sum(math.exp(50 * (v - 0.5)) for v in near)) / 50
    return total / len(y)


def smooth_ap(loss, z, y):
    s, losses = cosines(z), []

    def above(i, k, j):
        return 1 / (1 + math.exp(-(s[i][k] - s[i][j]) / loss.temperature))

    for i in range(len(y)):
        own = [j for j in range(len(y)) if y[j] == y[i]]
        if len(own) == 1:
            continue
        precision = [
            (1 + sum(above(i, k, j) for k in own if k != j))
            / (1 + sum(above(i, k, j) for k in range(len(y)) if k != j))
            for j in own
        ]
        losses.append(1 - mean(precision))
    return mean(losses)


def parts_of(loss, z):
    start, parts = 0, []
    for size in loss.sizes:
        parts.append(z[:, start : start + size])
        start += size
    return parts


def hdc(loss, z, y):
    total = 0.0
    for pairs, cost in (
        ([p for p in positive_pairs(y) if p[0] < p[1]], lambda d: d),
        ([p for p in negative_pairs(y) if p[0] < p[1]], lambda d: loss.margin - d),
    ):
        kept, before = pairs, None
        for part, fraction in zip(parts_of(loss, z), loss.fractions, strict=True):
            d = distances(part)
            hardness = {p: cost(d[p[0]][p[1]]) for p in pairs}
            ranked = sorted(kept, key=lambda p, by=before or hardness: -by[p])
            kept = ranked[: max(1, round(fraction * len(ranked)))]
            total += active_mean(hardness[p] for p in kept)
            before = hardness
    return total


def hdc_authors(loss, z, y):
    """The authors' layer, step by step: lists of losses, sorted, cut, added up, divided by what is above 0."""
    total = 0.0
    for part, fraction in zip(parts_of(loss, z), loss.fractions, strict=True):
        d = distances(part)
        positive = [d[i][j] ** 2 for i, j in positive_pairs(y) if i < j]
        negative = sorted((max(0.0, loss.margin - d[i][j] ** 2) for i, j in negative_pairs(y)), reverse=True)
        terms = positive + negative[: int(len(negative) * fraction)]
        total += sum(terms) / sum(term > 0 for term in terms)
    return total


def bier(loss, z, y):
    parts = parts_of(loss, z)
    total = 0.0
    for pairs, m in ((positive_pairs(y), 1.0), (negative_pairs(y), -loss.cost)):
        together = dict.fromkeys(pairs, 0.0 if loss.shrinkage is None else 0.5)
        weight = dict.fromkeys(pairs, 1.0)
        for index, part in enumerate(parts):
            s = cosines(part)
            a = {(i, j): loss.alpha * (s[i][j] - loss.beta) * m for i, j in pairs}
            terms = [weight[p] * math.log(1 + math.exp(-a[p])) for p in pairs]
            count = len(terms) + (len(y) if m > 0 and loss.self_pairs else 0)
            total += sum(terms) / count / len(parts)
            for p in pairs:
                if loss.shrinkage is None:
                    eta = 2 / (index + 2)
                    together[p] = (1 - eta) * together[p] + eta * a[p]
                    weight[p] = 1 / (1 + math.exp(together[p]))
                else:
                    together[p] += loss.shrinkage * a[p]
                    weight[p] = (1.0 if m > 0 else 2.0) / (1 + math.exp(together[p]))
    scaled = [part / part.square().mean(0).sqrt() for part in parts]
    diversity = 0.0
    for i in range(len(parts)):
        for j in range(i + 1, len(parts)):
            products = [(scaled[i][b][:, None] * scaled[j][b][None, :]).square().mean() for b in range(len(y))]
            diversity += mean(float(v) for v in products)
    return total + loss.diversity * diversity


def htl(loss, z, y):
    d, hinges = distances(z), []
    for a, p, n in triplets(y):
        level = next(k for k, nodes in enumerate(loss.nodes) if nodes[y[a]] == nodes[y[n]])
        alpha = loss.beta + float(loss.thresholds[level]) - float(loss.spreads[y[a]])
        hinges.append(max(0.0, d[a][p] ** 2 - d[a][n] ** 2 + alpha))
    return mean(hinges) / 2


CASES = {
    "triplet": (triplet, {}),
    "triplet, wide": (triplet, {"margin": 0.7}),
    "semihard": (semihard, {}),
    "semihard, no fallback": (semihard, {"fallback": False, "margin": 0.3}),
    "semihard, all": (semihard_all, {"negatives": "all", "margin": 0.3}),
    "contrastive": (contrastive, {}),
    "lifted": (lifted, {}),
    "binomial": (binomial, {}),
    "histogram": (histogram, {"bins": 20}),
    "npair": (npair, {}),
    "npair, one": (npair_one, {"pairs": "one"}),
    "npair, of one length": (npair, {"length": 3.0}),
    "margin": (margin, {}),
    "proxy-nca": (proxy_nca, {}),
    "proxy-anchor": (proxy_anchor, {}),
    "multi-similarity": (multi_similarity, {}),
    "smooth-ap": (smooth_ap, {"temperature": 0.1}),
    "hdc": (hdc, {}),
    "hdc, as the authors' layer": (hdc_authors, {"form": "authors"}),
    "bier": (bier, {}),
    "bier, counting as the authors' code": (bier, {"self_pairs": True, "diversity": 0.0}),
    "bier, as in the paper": (bier, {"boosting": "paper", "diversity": 0.0}),
    "htl": (htl, {}),
}


def made(case: str):
    _, options = CASES[case]
    loss = build(case.split(",")[0], dim=DIM, classes=CLASSES, **options).eval()
    if loss.wants_embeddings:
        loss.on_epoch([batch((4,) * CLASSES), batch((3,) * CLASSES)])
    return loss


def test_every_loss_has_a_formula():
    assert {case.split(",")[0] for case in CASES} == set(LOSSES)


@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_its_formula(case):
    loss = made(case)
    for _ in range(2):
        z, labels = batch()
        assert loss(z, labels).item() == pytest.approx(CASES[case][0](loss, z, labels), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("case", [case for case in CASES if "bier" not in case])  # its weights are held constant
def test_gradients_are_those_of_the_loss(case):
    loss = made(case)
    z, labels = batch()
    torch.autograd.gradcheck(lambda z: loss(z, labels), z.requires_grad_(), eps=1e-7, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("shrinkage", [0.06, None])
def test_boosting_weighs_the_gradient_of_each_learner_and_sends_none_through_the_weights(shrinkage):
    a = [torch.randn(7, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    grads = torch.autograd.grad(boosted(a, shrinkage=shrinkage, emphasis=2.0), a)
    weight, together = torch.ones(7, dtype=torch.float64), torch.full((7,), 0.0 if shrinkage is None else 0.5).double()
    for m, (value, grad) in enumerate(zip(a, grads, strict=True), start=1):
        value = value.detach()
        torch.testing.assert_close(grad, -weight * torch.sigmoid(-value) / 7)
        eta = 2 / (m + 1)
        together = (1 - eta) * together + eta * value if shrinkage is None else together + shrinkage * value
        weight = 2 * torch.sigmoid(-together)


def test_the_activation_loss_has_the_right_gradient():
    parts = [torch.randn(9, d, dtype=torch.float64, requires_grad=True) for d in (2, 3, 4)]
    torch.autograd.gradcheck(lambda *parts: co_activation(parts), parts, fast_mode=True)


@pytest.mark.parametrize("case", ["proxy-nca", "proxy-anchor", "margin"])
def test_gradients_of_the_losses_own_parameters_are_right(case):
    loss = made(case).double()
    z, labels = batch()
    (parameter,) = loss.parameters()

    def at(value):
        with torch.no_grad():
            parameter.copy_(value)
        return loss(z, labels)

    start = parameter.detach().clone()
    (grad,) = torch.autograd.grad(at(start), parameter)
    direction = torch.randn_like(start)
    numeric = (at(start + 1e-6 * direction) - at(start - 1e-6 * direction)).item() / 2e-6
    assert float((grad * direction).sum()) == pytest.approx(numeric, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("margin", "npair, one")])
def test_the_order_of_the_batch_does_not_matter(case):
    loss = made(case)
    z, labels = batch()
    order = torch.randperm(len(labels))
    assert loss(z[order], labels[order]).item() == pytest.approx(loss(z, labels).item(), rel=1e-9)


@pytest.mark.parametrize("case", [case for case in CASES if "npair" not in case])
def test_the_length_of_an_embedding_does_not_matter(case):
    loss = made(case)
    if case == "bier":
        loss.diversity = 0.0  # looks at lengths on purpose
    z, labels = batch()
    stretched = z * torch.rand(len(z), 1, dtype=z.dtype).add(0.1)
    assert loss(stretched, labels).item() == pytest.approx(loss(z, labels).item(), rel=1e-9)


def test_half_the_weight_of_npair_is_tensorflows():
    """npairs_loss: a softmax over the second images' products, and λ/4 · (mean |a|² + mean |p|²)."""
    z, weight = torch.randn(8, 5, dtype=torch.float64), 0.002
    labels = torch.arange(4).repeat_interleave(2)
    anchors, others = z[::2], z[1::2]
    softmax = torch.nn.functional.cross_entropy(anchors @ others.T, torch.arange(4))
    penalty = 0.25 * weight * (anchors.square().sum(1).mean() + others.square().sum(1).mean())
    loss = build("npair", dim=5, classes=4, pairs="one", l2=weight / 2)
    torch.testing.assert_close(loss(z, labels), softmax + penalty)
