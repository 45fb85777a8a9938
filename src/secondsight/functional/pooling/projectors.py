"""Projectors chosen by an assignment: ``(h ⊗ x) W``, without ever storing h ⊗ x, and its gradients.

For one location x ∈ R^d with coefficients h ∈ R^n over n projectors W_j ∈ R^{d×o} with offsets b_j ∈ R^o,

    project(x, h) = Σ_j h_j (W_jᵀ x + b_j) = (h ⊗ x)ᵀ W + hᵀ b .

The outer product h ⊗ x is formed for a few projectors at a time (about 512 columns: long enough for the matrix product
to run at full speed, short enough to stay in cache), used, and formed again for the backward pass. With sparse
coefficients, given as k weights and the k projectors they belong to, locations are sorted by projector and only k of
the n projections are computed.

These are kernels on rows (m locations); ``secondsight.functional.pooling.jcf`` makes layers of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

COLUMNS = 512  # of h ⊗ x formed at a time


def project(x: Tensor, h: Tensor, index: Tensor | None, w: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write Σ_j h_j (x W_j + b_j) into ``out``.

    Args:
        x: (m, d) locations.
        h: (m, k) coefficients; k = n when ``index`` is None.
        index: (m, k) the projectors that the coefficients belong to, or None for all n in order.
        w: (n, d, o) projectors.
        bias: (n, o) offsets, or None.
        out: (m, o) the result.
    """
    if index is None:
        _project_dense(x, h, w, bias, out)
    else:
        _project_routed(x, h, index, w, bias, out)


def project_backward(
    g: Tensor,
    x: Tensor,
    h: Tensor,
    index: Tensor | None,
    w: Tensor,
    bias: Tensor | None,
    gx: Tensor | None,
    gh: Tensor,
    gw: Tensor | None,
    gbias: Tensor | None,
    *,
    first: bool = False,
) -> None:
    """Add to ``gx``, ``gh``, ``gw`` and ``gbias`` the gradients of ⟨g, project(x, h)⟩, g being (m, o); None: not
    asked for. ``first``: ``gw`` holds nothing yet and is written, which spares filling the largest of them with zeros.
    """
    if index is None:
        _project_dense_backward(g, x, h, w, bias, gx, gh, gw, gbias, first)
    else:
        _project_routed_backward(g, x, h, index, w, bias, gx, gh, gw, gbias, first)


def _project_dense(x: Tensor, h: Tensor, w: Tensor, bias: Tensor | None, out: Tensor) -> None:
    (m, d), n = x.shape, len(w)
    if bias is None:
        out.zero_()
    else:
        torch.mm(h, bias, out=out)
    for j, k in _groups(n, d, x.dtype):
        hx = (h[:, j:k, None] * x[:, None, :]).view(m, (k - j) * d)
        out.addmm_(hx, w[j:k].reshape((k - j) * d, -1))


def _project_dense_backward(g, x, h, w, bias, gx, gh, gw, gbias, first) -> None:
    (m, d), n = x.shape, len(w)
    if bias is not None:
        gh.addmm_(g, bias.T)
    if gbias is not None:
        gbias.addmm_(h.T, g)
    for j, k in _groups(n, d, x.dtype):
        rows = w[j:k].reshape((k - j) * d, -1)
        if gw is not None:
            hx = (h[:, j:k, None] * x[:, None, :]).view(m, (k - j) * d)
            gw[j:k].view((k - j) * d, -1).addmm_(hx.T, g, beta=0 if first else 1)
        ghx = torch.mm(g, rows.T).view(m, k - j, d)
        if gx is not None:
            for i in range(j, k):
                gx.addcmul_(ghx[:, i - j], h[:, i, None])
        ghx *= x[:, None, :]
        gh[:, j:k] += ghx.sum(2)


def _project_routed(x, h, index, w, bias, out) -> None:
    order, spans = routes(index, len(w))
    rows, h_rows = order // index.shape[1], h.reshape(-1)[order]
    hx, y = x[rows].mul_(h_rows[:, None]), x.new_empty(len(order), w.shape[2])
    for j, span in spans:
        torch.mm(hx[span], w[j], out=y[span])
        if bias is not None:
            y[span].addr_(h_rows[span], bias[j])
    if index.shape[1] == 1:
        out.index_copy_(0, rows, y)
    else:
        out.zero_().index_add_(0, rows, y)


def _project_routed_backward(g, x, h, index, w, bias, gx, gh, gw, gbias, first) -> None:
    order, spans = routes(index, len(w))
    rows, h_rows = order // index.shape[1], h.reshape(-1)[order]
    g_rows, x_rows = g[rows], x[rows]
    hx, ghx = x_rows * h_rows[:, None], torch.empty_like(x_rows)
    if gw is not None and first:
        for j in set(range(len(w))) - {j for j, _ in spans}:
            gw[j].zero_()
    for j, span in spans:
        torch.mm(g_rows[span], w[j].T, out=ghx[span])
        if gw is not None:
            gw[j].addmm_(hx[span].T, g_rows[span], beta=0 if first else 1)
        if gbias is not None:
            gbias[j].addmv_(g_rows[span].T, h_rows[span])
    gh_rows = (ghx * x_rows).sum(1)
    if bias is not None:
        for j, span in spans:
            gh_rows[span].addmv_(g_rows[span], bias[j])
    gh.view(-1).index_add_(0, order, gh_rows)
    if gx is not None:
        gx.index_add_(0, rows, ghx.mul_(h_rows[:, None]))


def _groups(n: int, d: int, dtype: torch.dtype) -> Iterator[tuple[int, int]]:
    """Consecutive projectors [j, k) that are multiplied together."""
    # In half precision every addition to `out` rounds: leave the whole sum to one matrix product, which adds in
    # float32.
    step = n if dtype.itemsize == 2 else max(1, COLUMNS // d)
    for j in range(0, n, step):
        yield j, min(n, j + step)


def routes(index: Tensor, n: int) -> tuple[Tensor, list[tuple[int, slice]]]:
    """The entries (location, slot) sorted by projector; and for every projector that is used, which of them are its."""
    flat = index.reshape(-1)
    order = flat.argsort(stable=True)
    ends = torch.bincount(flat, minlength=n).cumsum(0).tolist()
    spans = zip(range(n), [0, *ends], ends, strict=False)
    return order, [(j, slice(start, end)) for j, start, end in spans if end > start]
