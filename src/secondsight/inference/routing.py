"""JCF with a sparse assignment in ONNX: every location is multiplied with its own codewords' projectors only.

The entries (location, slot) are sorted by codeword and split into one piece a codeword; a piece is multiplied with
[U_j V_j], and the products go back to the entries' own order:

    out_l = Σ_{slots s} h_ls (x_l W_{i_ls} + b_{i_ls}) .

How long a piece is depends on the picture, so the graph has shapes that do, which ``torch.export`` would have to
be talked into; it sees one operator, and this is its translation. k products a location instead of N. With one slot a
location both factors have the same h, and it is their product, half as wide, that goes back and is weighed by h².
"""

from __future__ import annotations

from typing import Any

Value = Any  # of the graph

INT64 = 7  # as ``onnx.TensorProto`` numbers it


def jcf(x, h, index, y, g, index2, uv, bias, rows: int, keep: bool) -> tuple[Value, Value]:
    """``secondsight::jcf`` with ``index``: z (b, o), and nothing in the place of the kept factors."""
    from onnxscript import opset18 as op

    n, o, k, alike = int(uv.shape[0]), int(uv.shape[-1]) // 2, int(h.shape[-1]), y is None and g is None
    shape = op.Concat(op.Shape(x, start=0, end=2), op.Constant(value_ints=[o]), axis=0)  # (b, l, o)
    nothing, places = op.Constant(value_floats=[0.0]), op.Constant(value_ints=[1])
    if alike and k == 1:
        order, factors = _sorted_products(op, x, index, n, uv, bias)
        products = op.Gather(_product(op, factors), _sorted(op, order))  # the order that sorts a permutation inverts it
        weights = op.Transpose(op.Mul(h, h), perm=[0, 2, 1])
        return op.Squeeze(op.MatMul(weights, op.Reshape(products, shape)), places), nothing
    if alike:
        product = _product(op, _routed(op, x, h, index, uv, bias, (0, 2 * o)))
    else:
        h2, which2 = (h, index) if g is None else (g, index2)
        first = _routed(op, x, h, index, uv, bias, (0, o))
        second = _routed(op, x if y is None else y, h2, which2, uv, bias, (o, 2 * o))
        product = op.Mul(first, second)
    return op.ReduceSum(op.Reshape(product, shape), places, keepdims=0), nothing


def _routed(op, x, h, index, uv, bias, columns: tuple[int, int]) -> Value:
    """(b·l, columns): Σ over a location's slots."""
    n, k, wide = int(uv.shape[0]), int(h.shape[-1]), columns[1] - columns[0]
    uv, bias = _columns(op, uv, *columns), None if bias is None else _columns(op, bias, *columns)
    order, products = _sorted_products(op, x, index, n, uv, bias)
    entries = op.Gather(products, _sorted(op, order))
    entries = op.Mul(entries, op.Reshape(h, op.Constant(value_ints=[-1, 1])))
    if k == 1:
        return entries
    slots = op.Reshape(entries, op.Constant(value_ints=[-1, k, wide]))
    return op.ReduceSum(slots, op.Constant(value_ints=[1]), keepdims=0)


def _sorted_products(op, x, index, n: int, uv, bias) -> tuple[Value, Value]:
    """Entries sorted by codeword: which they are, and x W + b of each."""
    d, k = int(x.shape[-1]), int(index.shape[-1])
    chosen = op.Reshape(index, op.Constant(value_ints=[-1]))
    order = _sorted(op, chosen)
    features = op.Reshape(x, op.Constant(value_ints=[-1, d]))
    features = op.Gather(features, order if k == 1 else op.Div(order, op.Constant(value_int=k)))
    numbers = op.Reshape(op.Constant(value_ints=list(range(n))), op.Constant(value_ints=[n, 1]))
    counts = op.ReduceSum(op.Cast(op.Equal(numbers, chosen), to=INT64), op.Constant(value_ints=[1]), keepdims=0)
    products = []
    for j, piece in enumerate(op.Split(features, counts, axis=0, num_outputs=n) if n > 1 else [features]):
        which = op.Constant(value_int=j)
        w, b = op.Gather(uv, which), None if bias is None else op.Gather(bias, which)
        products.append(op.MatMul(piece, w) if b is None else op.Gemm(piece, w, b))
    return order, op.Concat(*products, axis=0)


def _product(op, factors) -> Value:
    """a ∘ c of factors side by side."""
    return op.Mul(*op.Split(factors, axis=-1, num_outputs=2))


def _sorted(op, numbers) -> Value:
    """The positions of numbers (m), of the least first."""
    _, order = op.TopK(numbers, op.Shape(numbers), largest=0)
    return order


def _columns(op, value, start: int, stop: int) -> Value:
    return op.Slice(value, *(op.Constant(value_ints=[i]) for i in (start, stop, -1)))
