"""Every pooling of the registry as ONNX: other batches, other numbers of places, and exact zeros, against torch."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from secondsight import pooling
from secondsight.inference.exported import session
from secondsight.inference.graph import translated
from secondsight.pooling import POOLINGS, family

pytestmark = pytest.mark.usefixtures("traced")

D, OUT = 16, 24

VARIANTS: dict[str, tuple[str, dict]] = {
    **{name: (name, {}) for name in POOLINGS},
    "vlad": ("vlad-4", {"normalise": "sqrt-l2"}),
    "netvlad": ("netvlad-4", {}),
    "fisher": ("fisher-2", {}),
    "fishernet": ("fishernet-2", {}),
    "mfa-fv": ("mfa-fv-2-3", {}),
    "mfafvnet": ("mfafvnet-2-3", {}),
    "vlat": ("vlat-2", {}),
    "sta": ("sta-2", {}),
    "ista": ("ista-2", {}),
    "grassmann": ("grassmann-4", {}),
    "grassmann-full": ("grassmann-full-4", {}),
    "mpn-cov to another power": ("mpn-cov", {"power": 0.3}),
    "bp with a root": ("bp", {"root": True}),
    "lrbp mean": ("lrbp", {"reduce": "mean"}),
    "jcf-N": ("jcf-8", {}),
    "jcf-N-R": ("jcf-8-4", {"reduce": "mean"}),
    "jcf-N-R of the nearest codeword": ("jcf-16-4", {"assign": "top-1", "start": "square", "gains": True}),
    "jcf-N of the nearest codeword": ("jcf-8", {"assign": "top-1"}),
    "jcf-N-R of two codewords a place": ("jcf-16-4", {"assign": "top-2"}),
    "jcf with an ending": (
        "jcf-8-4",
        {"start": "square", "power": 0.5, "whiten": 0.25, "width": 40, "gains": True, "mix": "mlp"},
    ),
    "jcf-pairs of codewords": ("jcf-pairs-8-4", {"before": 6, "width": 24}),
    "jcf with two codebooks": ("jcf-4", {"codebooks": 2, "assign": "hard"}),
}


class Maps(nn.Module):
    """All of them on the same feature maps (B, h, w, d): one graph, traced once."""

    def __init__(self, poolings: dict[str, nn.Module]):
        super().__init__()
        self.poolings = nn.ModuleList(poolings.values())

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(p(x.flatten(1, 2), grid=(x.shape[1], x.shape[2])) for p in self.poolings)


@pytest.fixture(scope="module")
def poolings(traced) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    x = torch.randn(32, 5, 6, D).relu()
    made = {}
    for name, (what, options) in VARIANTS.items():
        made[name] = pooling.build(what, D, OUT, **options).eval()
        made[name].fit(x.flatten(1, 2), grid=(5, 6))
    return made


@pytest.fixture(scope="module")
def outputs(poolings, tmp_path_factory):
    dims = {
        axis: torch.export.Dim(name, min=least, max=99) for axis, name, least in ((0, "b", 1), (1, "h", 2), (2, "w", 2))
    }
    names = [f"z{i}" for i in range(len(poolings))]
    proto = translated(Maps(poolings), (torch.randn(3, 5, 6, D),), (dims,), inputs=["x"], outputs=names)
    path = tmp_path_factory.mktemp("poolings") / "all.onnx"
    path.write_bytes(proto.SerializeToString())
    runtime, kept = session(path, threads=1), {}

    def of(x: Tensor) -> dict[str, np.ndarray]:
        key = (tuple(x.shape), float(x.sum()))
        if key not in kept:
            kept[key] = dict(zip(poolings, runtime.run(names, {"x": x.numpy()}), strict=True))
        return kept[key]

    return of


def maps(*shape: int) -> Tensor:
    return torch.randn(*shape, D, generator=torch.Generator().manual_seed(1)).relu()


def zeros_among() -> Tensor:
    """An image of zeros, one with zero places, one with a zero channel."""
    x = maps(3, 5, 6)
    x[0], x[1, :2], x[2, ..., 3] = 0, 0, 0
    return x


CASES = {
    "one image": maps(1, 5, 6),
    "more images than were traced": maps(80, 5, 6),
    "fewer places": maps(2, 2, 3),
    "more places than channels": maps(2, 9, 8),
    "exact zeros": zeros_among(),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", VARIANTS)
def test_the_exported_pooling_is_the_pooling(poolings, outputs, name, case):
    x = CASES[case]
    with torch.no_grad():
        ours = poolings[name](x.flatten(1, 2), grid=tuple(x.shape[1:3])).numpy()
    theirs = outputs(x)[name]
    assert theirs.shape == ours.shape
    np.testing.assert_allclose(theirs, ours, atol=1e-4 * np.abs(ours).max())


def test_every_family_is_here():
    assert {family(what) for what, _ in VARIANTS.values()} == set(POOLINGS)


@pytest.mark.parametrize("name", VARIANTS)
def test_weights_in_half_precision_give_nearly_the_same(poolings, name):
    x = CASES["one image"].flatten(1, 2)
    half = copy.deepcopy(poolings[name]).half()
    with torch.no_grad():
        ours, theirs = poolings[name](x, grid=(5, 6)), half(x.half(), grid=(5, 6)).float()
    assert torch.cosine_similarity(ours, theirs).min() > 0.9999


@pytest.mark.parametrize(("n", "rank"), [(2, 2), (3, 1), (12, 12), (31, 31), (40, 7)])
def test_jacobis_method_finds_the_eigenvectors_of_symmetric_matrices(eigen, n, rank):
    x = torch.randn(3, rank, n)
    a = (x.mT @ x).numpy()
    a[1] -= 2 * np.eye(n, dtype=np.float32)  # negative eigenvalues, too
    values, vectors = eigen.run(None, {"a": a})
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a), atol=2e-5 * np.abs(a).max() * n**0.5)
    np.testing.assert_allclose((vectors * values[:, None]) @ vectors.transpose(0, 2, 1), a, atol=2e-4 * np.abs(a).max())
    np.testing.assert_allclose(vectors.transpose(0, 2, 1) @ vectors, np.eye(n)[None].repeat(3, 0), atol=5e-5)


def test_jacobis_method_leaves_diagonal_matrices_and_zeros_alone(eigen):
    a = np.stack([np.diag(np.float32([3, 1, 2])), np.zeros((3, 3), np.float32)])
    values, vectors = eigen.run(None, {"a": a})
    np.testing.assert_array_equal(values, np.float32([[1, 2, 3], [0, 0, 0]]))
    np.testing.assert_array_equal(np.abs(vectors[0]), np.float32([[0, 0, 1], [1, 0, 0], [0, 1, 0]]))


class Eigen(nn.Module):
    def forward(self, a: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(torch.linalg.eigh(a))  # pyright: ignore[reportReturnType]


@pytest.fixture(scope="module")
def eigen(traced, tmp_path_factory):
    n = torch.export.Dim("n", min=2, max=99)
    a = torch.randn(3, 6, 6)
    dims = {0: torch.export.Dim("b", min=1, max=99), 1: n, 2: n}
    proto = translated(Eigen(), (a + a.mT,), (dims,), inputs=["a"], outputs=["values", "vectors"])
    path = tmp_path_factory.mktemp("eigen") / "eigen.onnx"
    path.write_bytes(proto.SerializeToString())
    return session(path, threads=1)


def test_an_export_that_succeeds_says_nothing(caplog):
    layer = pooling.build("jcf-8-4", D, OUT, assign="top-1").eval()
    dims = ({0: torch.export.Dim("b", min=1, max=99)},)
    translated(Maps({"jcf": layer}), (torch.randn(3, 5, 6, D),), dims, inputs=["x"], outputs=["z"])
    assert not [record.message for record in caplog.records if record.levelno >= logging.WARNING]
