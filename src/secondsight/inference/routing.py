"""JCF with a sparse assignment in ONNX: every location is multiplied with its own codewords' projectors only.

For each codeword j the entries (location, slot) that chose it are picked, h · x of their locations is multiplied with
[U_j V_j], and the products are added to their locations' rows:

    out_l = Σ_{slots s} h_ls (x_l W_{i_ls} + b_{i_ls}) .

Which locations these are depends on the picture, so the graph has shapes that do, which ``torch.export`` would have to
be talked into; it sees one operator, and this is its translation. k products a location instead of N.
"""

from __future__ import annotations

from typing import Any

Value = Any  # of the graph


def jcf(x, h, index, y, g, index2, uv, bias, rows: int, keep: bool) -> tuple[Value, Value]:
    """``secondsight::jcf`` with ``index``: z (b, o), and nothing in the place of the kept factors."""
    from onnxscript import opset18 as op

    n, d, both = (int(size) for size in uv.shape)
    o = both // 2
    shape = op.Concat(op.Shape(x, start=0, end=2), op.Constant(value_ints=[o]), axis=0)  # (b, l, o)
    if y is None and g is None:
        factors = _routed(op, x, h, index, uv, bias, (0, both), n, d)
        first, second = (_columns(op, factors, start, start + o) for start in (0, o))
    else:
        h2, which2 = (h, index) if g is None else (g, index2)
        first = _routed(op, x, h, index, uv, bias, (0, o), n, d)
        second = _routed(op, x if y is None else y, h2, which2, uv, bias, (o, both), n, d)
    z = op.ReduceSum(op.Reshape(op.Mul(first, second), shape), op.Constant(value_ints=[1]), keepdims=0)
    return z, op.Constant(value_floats=[0.0])


def _routed(op, x, h, index, uv, bias, columns: tuple[int, int], n: int, d: int) -> Value:
    """(b·l, columns): Σ over a location's slots."""
    k, wide = int(h.shape[-1]), columns[1] - columns[0]
    flat_x = op.Reshape(x, op.Constant(value_ints=[-1, d]))
    chosen = op.Reshape(index, op.Constant(value_ints=[-1]))
    weights = op.Reshape(h, op.Constant(value_ints=[-1, 1]))
    entries = op.Range(op.Constant(value_int=0), op.Squeeze(op.Shape(chosen)), op.Constant(value_int=1))
    places, products = [], []
    for j in range(n):
        mine = op.Compress(entries, op.Equal(chosen, op.Constant(value_int=j)))
        place = mine if k == 1 else op.Div(mine, op.Constant(value_int=k))
        weight = op.Gather(weights, mine)
        own = _columns(op, op.Gather(uv, op.Constant(value_int=j)), *columns)
        product = op.MatMul(op.Mul(op.Gather(flat_x, place), weight), own)
        if bias is not None:
            offset = _columns(op, op.Gather(bias, op.Constant(value_ints=[j])), *columns)
            product = op.Add(product, op.MatMul(weight, offset))
        places.append(place)
        products.append(product)
    count = op.Shape(flat_x, start=0, end=1)
    zeros = op.Expand(op.Constant(value_float=0.0), op.Concat(count, op.Constant(value_ints=[wide]), axis=0))
    at = op.Unsqueeze(op.Concat(*places, axis=0), op.Constant(value_ints=[1]))
    return op.ScatterND(zeros, at, op.Concat(*products, axis=0), reduction="add")


def _columns(op, value, start: int, stop: int) -> Value:
    return op.Slice(value, *(op.Constant(value_ints=[i]) for i in (start, stop, -1)))
