"""Principal directions of local features, whole or by cluster, and of very wide pooled vectors, from a stream."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.functional.pooling.eigenvectors import eigh
from secondsight.functional.pooling.residuals import nearest_codeword
from secondsight.pooling.contract import Features
from secondsight.pooling.feature_samples import chunks, usable


def main_directions(features: Features, n: int) -> Float[Tensor, "d n"]:
    """The n orthonormal directions that keep most of Σ ‖x‖², the strongest first, in double precision.

    Not centred: the mean direction carries information too (it lets a second-order layer see the first order), and
    cosines survive as well as they can.
    """
    moment: Tensor | None = None
    for chunk in chunks(features):
        x = chunk if chunk.dtype == torch.float64 else chunk.float()
        product = (x.mT @ x).double()
        moment = product if moment is None else moment + product
    return eigh(usable(moment))[1].flip(1)[:, :n]


def cluster_axes(
    points: Float[Tensor, "m d"], centres: Float[Tensor, "n d"], dim: int
) -> tuple[Float[Tensor, "n d p"], Float[Tensor, "n p p"]]:
    """V_k and V_kᵀ E[(x − μ_k)(x − μ_k)ᵀ] V_k of every cluster, one d×d matrix at a time.

    A cluster with fewer points than axes takes its remaining axes from the pooled residuals.
    """
    words = nearest_codeword(points, centres)
    pooled = _scatter((points - centres[words]).double())
    axes, tensors = [], []
    for k, centre in enumerate(centres):
        own = _scatter((points[words == k] - centre).double())
        # enough of the pooled scatter to order what the cluster does not determine, too little to turn what it does
        vectors = eigh(own + 1e-6 * pooled)[1][:, -dim:].flip(1)
        axes.append(vectors)
        tensors.append(vectors.T @ own @ vectors)
    return torch.stack(axes).to(points), torch.stack(tensors).to(points)


def _scatter(r: Tensor) -> Tensor:
    return r.T @ r / max(len(r), 1)


class PCA:
    """Mean and principal axes of vectors that come a few at a time; memory is (rank + block) × width numbers.

    It keeps the ``rank`` strongest directions R (rows scaled by √(n·variance)) of what it has seen. A new block Z,
    centred, joins them through the Gram matrix of the stacked rows, which is small however wide the vectors are:

        [R; Z; √(nm/(n+m)) (μ_Z − μ)] = V S Wᵀ,    R ← the top rows of S Wᵀ .

    Exact while no more than ``rank`` directions have been seen; after that, what is dropped is the weakest.

    >>> pca = PCA(rank=2)
    >>> pca.add(torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 1.0], [2.0, -1.0]]))
    >>> pca.mean, pca.variances
    (tensor([2., 0.]), tensor([0.6667, 0.6667]))
    """

    def __init__(self, rank: int):
        self.rank = rank
        self.count = 0
        self.mean = torch.zeros(0)
        self.rows = torch.zeros(0, 0)

    def add(self, z: Float[Tensor, "m width"]) -> None:
        """Take in more vectors."""
        m = len(z)
        if m == 0:
            return
        if self.count == 0:
            self.mean, self.rows = z.new_zeros(z.shape[1]), z.new_zeros(0, z.shape[1])
        mean, n = z.mean(0), self.count
        r = len(self.rows)
        stacked = z.new_empty(r + m + 1, z.shape[1])  # filled in place: it is most of the memory
        stacked[:r] = self.rows
        torch.sub(z, mean, out=stacked[r:-1])
        stacked[-1] = (n * m / (n + m)) ** 0.5 * (mean - self.mean)
        self.rows = z.new_empty(0)
        self.rows = _strongest(stacked, self.rank)
        self.mean = self.mean + (mean - self.mean) * (m / (n + m))
        self.count = n + m

    @property
    def variances(self) -> Float[Tensor, " r"]:
        """Along each of the directions, the largest first."""
        return self.rows.square().sum(1) / max(1, self.count - 1)

    @property
    def axes(self) -> Float[Tensor, "r width"]:
        """Orthonormal, in the order of ``variances``."""
        return torch.nn.functional.normalize(self.rows, dim=1)


def _strongest(rows: Float[Tensor, "m width"], rank: int) -> Float[Tensor, "r width"]:
    """At most ``rank`` orthogonal rows with the same RᵀR, but for the weakest directions."""
    gram = (rows @ rows.mT).double()
    values, v = eigh(gram)
    values, v = values.flip(0)[:rank], v.flip(1)[:, :rank]
    keep = values > values[:1] * len(rows) * torch.finfo(rows.dtype).eps
    strong = v[:, keep].mT.to(rows.dtype) @ rows
    # The product with the rows rounds; the lengths are known better from the eigenvalues.
    lengths = values[keep].sqrt().to(rows.dtype) / strong.norm(dim=1).clamp_min(torch.finfo(rows.dtype).tiny)
    return strong.mul_(lengths[:, None])
