"""JCF with a sparse assignment in ONNX: every location is multiplied with its own codewords' projectors only.

The entries (location, slot) are sorted by codeword and split into one piece a codeword; a piece is multiplied with
[U_j V_j], and the products go back to the entries' own order:

    out_l = Σ_{slots s} h_ls (x_l W_{i_ls} + b_{i_ls}) .

How long a piece is depends on the picture, so the graph has shapes that do, which ``torch.export`` would have to
be talked into; it sees one operator, and this is its translation. k products a location instead of N.
"""

from __future__ import annotations

from typing import Any

Value = Any  # of the graph

INT64 = 7  # as ``onnx.TensorProto`` numbers it


def jcf(x, h, index, y, g, index2, uv, bias, rows: int, keep: bool) -> tuple[Value, Value]:
    """``secondsight::jcf`` with ``index``: z (b, o), and nothing in the place of the kept factors."""
    from onnxscript import opset18 as op

    o = int(uv.shape[-1]) // 2
    shape = op.Concat(op.Shape(x, start=0, end=2), op.Constant(value_ints=[o]), axis=0)  # (b, l, o)
    if y is None and g is None:
        factors = _routed(op, x, h, index, uv, bias, (0, 2 * o))
        first, second = (_columns(op, factors, start, start + o) for start in (0, o))
    else:
        h2, which2 = (h, index) if g is None else (g, index2)
        first = _routed(op, x, h, index, uv, bias, (0, o))
        second = _routed(op, x if y is None else y, h2, which2, uv, bias, (o, 2 * o))
    z = op.ReduceSum(op.Reshape(op.Mul(first, second), shape), op.Constant(value_ints=[1]), keepdims=0)
    return z, op.Constant(value_floats=[0.0])


def _routed(op, x, h, index, uv, bias, columns: tuple[int, int]) -> Value:
    """(b·l, columns): Σ over a location's slots."""
    (n, d), k, wide = (int(size) for size in uv.shape[:2]), int(h.shape[-1]), columns[1] - columns[0]
    chosen = op.Reshape(index, op.Constant(value_ints=[-1]))
    weights = op.Reshape(h, op.Constant(value_ints=[-1, 1]))
    order = _sorted(op, chosen)
    places = order if k == 1 else op.Div(order, op.Constant(value_int=k))
    features = op.Gather(op.Reshape(x, op.Constant(value_ints=[-1, d])), places)
    products = []
    for j, piece in enumerate(_pieces(op, features, chosen, n)):
        products.append(op.MatMul(piece, _columns(op, op.Gather(uv, op.Constant(value_int=j)), *columns)))
    back = _sorted(op, order)  # the inverse of a permutation is the order that sorts it
    entries = op.Gather(op.Concat(*products, axis=0), back)
    if bias is not None:
        entries = op.Add(entries, op.Gather(_columns(op, bias, *columns), chosen))
    entries = op.Mul(entries, weights)
    if k == 1:
        return entries
    slots = op.Reshape(entries, op.Constant(value_ints=[-1, k, wide]))
    return op.ReduceSum(slots, op.Constant(value_ints=[1]), keepdims=0)


def _sorted(op, numbers) -> Value:
    """The positions of numbers (m), of the least first."""
    _, order = op.TopK(numbers, op.Shape(numbers), largest=0)
    return order


def _pieces(op, rows, chosen, n: int) -> list[Value]:
    """Rows that are sorted by codeword, as one tensor a codeword; it may have no rows."""
    numbers = op.Reshape(op.Constant(value_ints=list(range(n))), op.Constant(value_ints=[n, 1]))
    counts = op.ReduceSum(op.Cast(op.Equal(numbers, chosen), to=INT64), op.Constant(value_ints=[1]), keepdims=0)
    split = op.SplitToSequence(rows, counts, axis=0)
    return [op.SequenceAt(split, op.Constant(value_int=j)) for j in range(n)]


def _columns(op, value, start: int, stop: int) -> Value:
    return op.Slice(value, *(op.Constant(value_ints=[i]) for i in (start, stop, -1)))
