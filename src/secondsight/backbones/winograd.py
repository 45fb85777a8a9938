"""3×3 convolutions by Winograd's minimal filtering, F(4×4, 3×3): 2.25 products of a number where the sum takes 9.

Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks" (2016). Every tile of 4×4 outputs needs 6×6 inputs d;
with the constant matrices A, B and G below and a kernel g

    y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A

and over channels ⊙ becomes one matrix product for each of the 36 places. Both sides of a transform act as one matrix,
the Kronecker product of its factors, so that everything here is a product of matrices.

Rounding: the transforms add and subtract before they multiply, so in float32 the result is off by some millionths of
its length, a few times more than the plain sum's. Half precision would lose too much.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

OUT, IN = 4, 6
"""Side of a tile of outputs, and of the inputs that it depends on."""

BLOCK = 16 * 2**20
"""Numbers that a transformed block of images may have: 64 MB in float32. Fewer, and the kernels are read too often."""

_B = [
    [4, 0, 0, 0, 0, 0],
    [0, -4, 4, -2, 2, 4],
    [-5, -4, -4, -1, -1, 0],
    [0, 1, -1, 2, -2, -5],
    [1, 1, 1, 1, 1, 0],
    [0, 0, 0, 0, 0, 1],
]
_G = [
    [1 / 4, 0, 0],
    [-1 / 6, -1 / 6, -1 / 6],
    [-1 / 6, 1 / 6, -1 / 6],
    [1 / 24, 1 / 12, 1 / 6],
    [1 / 24, -1 / 12, 1 / 6],
    [0, 0, 1],
]
_A = [[1, 0, 0, 0], [1, 1, 1, 1], [1, -1, 1, -1], [1, 2, 4, 8], [1, -2, 4, -8], [0, 0, 0, 1]]


def conv3x3(
    x: Float[Tensor, "b i h w"], weight: Float[Tensor, "o i 3 3"], bias: Float[Tensor, " o"] | None = None
) -> Float[Tensor, "b o h w"]:
    """``conv2d(x, weight, bias, padding=1)``, channels last in memory (x is taken as it comes, and best so too)."""
    y = _Conv.apply(x.permute(0, 2, 3, 1), weight)
    assert isinstance(y, Tensor)
    return (y if bias is None else y + bias).permute(0, 3, 1, 2)


def _twice(matrix: Sequence[Sequence[float | int]], like: Tensor) -> Tensor:
    """M ⊗ M: what M d Mᵀ does to the rows of d laid end to end."""
    m = torch.tensor(matrix, dtype=torch.float64)
    return torch.kron(m, m).to(like)


class _Conv(torch.autograd.Function):
    """Both directions go a few images at a time; of the forward pass only its input is kept."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        kernels, back = _kernels(weight), _twice(_A, weight).mT
        b, h, w, _ = x.shape
        y = x.new_empty(b, h, w, len(weight))
        for some in _blocks(x, weight):
            products = torch.bmm(_inputs(x[some]), kernels)  # 36, tiles, o
            y[some] = _laid_out(back @ products.flatten(1), y[some])
        return y

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        (g,) = gradients
        wants_x, wants_weight = ctx.needs_input_grad
        if torch.is_grad_enabled():  # create_graph=True: gradients that can be differentiated again, at the plain price
            plain = F.conv2d(x.permute(0, 3, 1, 2), weight, padding=1).permute(0, 2, 3, 1)
            wanted = [t for t, wants in zip((x, weight), (wants_x, wants_weight), strict=True) if wants]
            found = iter(torch.autograd.grad(plain, wanted, g, create_graph=True))
            return next(found) if wants_x else None, next(found) if wants_weight else None
        kernels, spread, back = _kernels(weight), _twice(_A, weight), _twice(_B, weight)
        dx = torch.empty_like(x, memory_format=torch.contiguous_format) if wants_x else None
        du = torch.zeros_like(kernels) if wants_weight else None
        for some in _blocks(x, weight):
            dm = (spread @ _cut(g[some])).unflatten(1, (-1, len(weight)))  # 36, tiles, o
            if du is not None:
                du.baddbmm_(_inputs(x[some]).mT, dm)
            if dx is not None:
                dx[some] = _overlapped(back @ torch.bmm(dm, kernels.mT).flatten(1), dx[some])
        if du is None:
            return dx, None
        dw = _twice(_G, weight).mT @ du.flatten(1)  # 9, i·o
        return dx, dw.view(3, 3, *du.shape[1:]).permute(3, 2, 0, 1)


def _kernels(weight: Tensor) -> Float[Tensor, "36 i o"]:
    """G g Gᵀ of every kernel g."""
    o, i = weight.shape[:2]
    return (_twice(_G, weight) @ weight.permute(2, 3, 1, 0).reshape(9, -1)).view(IN * IN, i, o)


def _grid(x: Tensor) -> tuple[int, int]:
    return -(-x.shape[1] // OUT), -(-x.shape[2] // OUT)


def _blocks(x: Tensor, weight: Tensor) -> list[slice]:
    rows, columns = _grid(x)
    images = max(1, BLOCK // max(1, IN * IN * rows * columns * max(weight.shape[:2])))
    return [slice(start, start + images) for start in range(0, len(x), images)]


def _inputs(x: Float[Tensor, "b h w i"]) -> Float[Tensor, "36 tiles i"]:
    """Bᵀ d B of every tile: the input cut into overlapping tiles of 6×6, the image's edge padded by zeros."""
    b, h, w, i = x.shape
    rows, columns = _grid(x)
    x = F.pad(x, (0, 0, 1, OUT * columns + 1 - w, 1, OUT * rows + 1 - h))
    image, down, right, channel = x.stride()
    tiles = x.as_strided((IN, IN, b, rows, columns, i), (down, right, image, OUT * down, OUT * right, channel))
    return (_twice(_B, x).mT @ tiles.reshape(IN * IN, -1)).unflatten(1, (-1, i))


def _laid_out(tiles: Float[Tensor, "16 tiles_o"], like: Float[Tensor, "b h w o"]) -> Float[Tensor, "b h w o"]:
    """Tiles of 4×4 side by side, as the image that they make."""
    b, h, w, o = like.shape
    rows, columns = _grid(like)
    image = tiles.view(OUT, OUT, b, rows, columns, o).permute(2, 3, 0, 4, 1, 5)
    return image.reshape(b, OUT * rows, OUT * columns, o)[:, :h, :w]


def _cut(image: Float[Tensor, "b h w o"]) -> Float[Tensor, "16 tiles_o"]:
    """The inverse of ``_laid_out``."""
    b, h, w, o = image.shape
    rows, columns = _grid(image)
    padded = F.pad(image, (0, 0, 0, OUT * columns - w, 0, OUT * rows - h))
    return padded.view(b, rows, OUT, columns, OUT, o).permute(2, 4, 0, 1, 3, 5).reshape(OUT * OUT, -1)


def _overlapped(tiles: Float[Tensor, "36 tiles_i"], like: Float[Tensor, "b h w i"]) -> Float[Tensor, "b h w i"]:
    """The transpose of cutting into tiles of 6×6: they are added where they overlap, and the padding is cut off."""
    b, h, w, i = like.shape
    rows, columns = _grid(like)
    tiles = tiles.view(IN, IN, b, rows, columns, i).permute(2, 3, 0, 4, 1, 5)  # b, rows, 6, columns, 6, i
    whole = tiles.new_zeros(b, rows + 1, OUT, columns + 1, OUT, i)
    for down, y in ((0, slice(0, OUT)), (1, slice(OUT, IN))):
        for right, x in ((0, slice(0, OUT)), (1, slice(OUT, IN))):
            part = tiles[:, :, y, :, x]
            whole[:, down : down + rows, : part.shape[2], right : right + columns, : part.shape[4]] += part
    return whole.view(b, OUT * (rows + 1), OUT * (columns + 1), i)[:, 1 : h + 1, 1 : w + 1]
