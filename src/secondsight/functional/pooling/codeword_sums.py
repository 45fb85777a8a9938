"""JCF's sums codeword by codeword, where each location belongs to one codeword: what the codewords' gains multiply.

S_n = Σ_{x of codeword n} (U_nᵀx + b_n) ∘ (V_nᵀx + c_n),      z = Σ_n g_n² S_n .
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from secondsight.functional.pooling.codeword_tensors import route


def codeword_sums(
    x: Float[Tensor, "b l d"],
    words: Int[Tensor, "b l"],
    uv: Float[Tensor, "n d two_o"],
    *,
    bias: Float[Tensor, "n two_o"] | None = None,
    mask: Bool[Tensor, "b l"] | None = None,
) -> Float[Tensor, "b n two_o//2"]:
    """S of every image. No gradient is needed where this is used, and none is saved for.

    >>> x, uv = torch.tensor([[[2.0], [3.0]]]), torch.tensor([[[1.0, 1.0]], [[1.0, 2.0]]])
    >>> codeword_sums(x, torch.tensor([[0, 1]]), uv).tolist()
    [[[4.0], [18.0]]]
    """
    (b, length, _), (n, _, both) = x.shape, uv.shape
    routes = route(words, n, mask)
    sums, rows_of_x = x.new_zeros(n, b, both // 2), x.flatten(0, 1)
    for j, rows in enumerate(routes.order.split(routes.sizes)):
        some = rows_of_x.index_select(0, rows)
        factors = some @ uv[j] if bias is None else torch.addmm(bias[j], some, uv[j])
        a, c = factors.chunk(2, dim=-1)
        sums[j].index_add_(0, rows // length, a * c)
    return sums.transpose(0, 1)
