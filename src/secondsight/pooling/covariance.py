"""Global covariance pooling: the covariance of the local features, to the power ½.

MPN-COV: Li, Xie, Wang, Zuo, ICCV 2017 (eigendecomposition). iSQRT-COV: Li, Xie, Wang, Gao, CVPR 2018 (Newton–Schulz).
The power evens out the eigenvalues, and gives a robust estimate where locations are fewer than channels.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from secondsight.errors import ConfigError
from secondsight.functional.pooling.covariance import covariance
from secondsight.functional.pooling.full_precision import full_precision
from secondsight.functional.pooling.matrix_sqrt import matrix_power, newton_schulz_sqrt
from secondsight.functional.pooling.triangle import upper_triangle
from secondsight.pooling.contract import Grid, Locals, Mask, Pooling, at_least_one, positive


class MPNCov(Pooling):
    """``mpn-cov``: the upper triangle of Σ^α, by eigendecomposition.

    Args:
        in_dim: d, the size of a local feature; the output has d(d+1)/2 dimensions.
        power: α. The paper's ½ is the best of those it tries; 1 is the covariance itself.
        isometric: Multiply what is off the diagonal by √2, so that inner products are those of the whole matrices. The
            papers do not; it matters when nothing is learned after the pooling.
    """

    family = "mpn-cov"
    summary = "square root of the covariance, by eigenvectors"
    paper = "Li, Xie, Wang, Zuo, ICCV 2017"
    takes_out_dim = False

    def __init__(self, in_dim: int, *, power: float = 0.5, isometric: bool = False):
        super().__init__(in_dim, in_dim * (in_dim + 1) // 2)
        if not 0 < power <= 1:
            raise ConfigError(f"mpn-cov: power must be over 0 and at most 1, got {power}")
        self.power, self.isometric = power, isometric

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        with full_precision(self.checked(x, mask)) as x:
            return upper_triangle(matrix_power(covariance(x, mask), self.power), isometric=self.isometric)

    def flops(self, locations: int) -> int:
        d = self.in_dim
        return 2 * locations * d * d + 9 * d**3 + 2 * d**3  # covariance, eigendecomposition (LAPACK's count), U Λ^α Uᵀ


class ISqrtCov(Pooling):
    """``isqrt-cov-N``: the upper triangle of Σ^½, by N steps of the coupled Newton–Schulz iteration.

    Args:
        in_dim: d, the size of a local feature; the output has d(d+1)/2 dimensions.
        steps: N. The papers find 3 to 5 enough; small eigenvalues need more (see ``newton_schulz_sqrt``).
        isometric: As for ``MPNCov``.
        eps: Added to the trace, so that a covariance of zero has a finite gradient.
    """

    family = "isqrt-cov"
    summary = "square root of the covariance, by Newton–Schulz"
    paper = "Li, Xie, Wang, Gao, CVPR 2018"
    name_options = ("steps",)
    takes_out_dim = False

    def __init__(self, in_dim: int, *, steps: int = 5, isometric: bool = False, eps: float = 1e-10):
        super().__init__(in_dim, in_dim * (in_dim + 1) // 2)
        at_least_one("isqrt-cov", steps=steps)
        positive("isqrt-cov", eps=eps)
        self.steps, self.isometric, self.eps = steps, isometric, eps

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        with full_precision(self.checked(x, mask)) as x:
            root = newton_schulz_sqrt(covariance(x, mask), steps=self.steps, eps=self.eps)
            return upper_triangle(root, isometric=self.isometric)

    def flops(self, locations: int) -> int:
        d, products = self.in_dim, 1 if self.steps == 1 else 3 * self.steps - 3
        return 2 * locations * d * d + 2 * products * d**3
