"""Jacobi's method for symmetric eigenproblems, as an ONNX function (onnxscript's dialect of Python, not Python).

Rotations J annul one pair of off-diagonal entries each, A ← JᵀAJ, V ← VJ, until A is diagonal. n/2 disjoint pairs are
turned at once, and n − 1 rounds meet all pairs (a round-robin tournament; Brent & Luk 1985): seat i plays seat i + n/2,
then all but the first move on by one seat. Rows alone are turned, which lie together in memory: Jᵀ[A Vᵀ], and, A being
symmetric, Jᵀ(JᵀA)ᵀ. Some seven sweeps of n − 1 rounds converge. That costs far more than LAPACK's method, and needs
nothing but what ONNX has.
"""

from onnxscript import FLOAT, script, values
from onnxscript import opset18 as op


@script(values.Opset("secondsight", 1), default_opset=op)
def symmetric_eigen(a: FLOAT[...]) -> tuple[FLOAT[...], FLOAT[...]]:
    """(values rising (b, n), vectors (b, n, n) in columns) of symmetric matrices (b, n, n)."""
    zero = op.Constant(value_ints=[0])
    one = op.Constant(value_ints=[1])
    two = op.Constant(value_ints=[2])
    minus_one = op.Constant(value_ints=[-1])
    start = op.Constant(value_int=0)
    step = op.Constant(value_int=1)
    unit = op.Constant(value_float=1.0)
    tiny = op.Constant(value_float=1e-30)
    enough = op.Constant(value_float=1e-6)  # of the largest entry: where single precision stops getting better

    n = op.Shape(a, start=1, end=2)
    # An even number of rows, at least 4; those that are added have the lowest eigenvalues and are dropped again.
    size = op.Max(op.Mul(op.Div(op.Add(n, one), two), two), op.Constant(value_ints=[4]))
    more = op.Sub(size, n)
    m = op.Div(size, two)
    whole = op.Squeeze(size, zero)
    seats = op.Range(start, whole, step)
    eye = op.Cast(op.Equal(op.Unsqueeze(seats, zero), op.Unsqueeze(seats, one)), to=1)
    others = op.Sub(unit, eye)
    largest = op.Max(op.ReduceMax(op.Abs(a), op.Constant(value_ints=[1, 2]), keepdims=1), tiny)
    lowest = op.Mul(op.Constant(value_float=-4.0), op.Cast(size, to=1))
    added = op.Mul(op.Cast(op.GreaterOrEqual(seats, n), to=1), lowest)
    work = op.Pad(op.Div(a, largest), op.Concat(zero, zero, zero, zero, more, more, axis=0))
    work = op.Add(work, op.Mul(eye, added))
    vectors = op.Expand(eye, op.Shape(work))  # Vᵀ

    top = op.Range(step, op.Squeeze(op.Sub(m, one), zero), step)
    bottom = op.Range(op.Squeeze(op.Add(m, one), zero), whole, step)
    moved = op.Concat(zero, m, top, bottom, op.Sub(m, one), axis=0)
    flat = op.Concat(zero, minus_one, axis=0)
    on_diagonal = op.Mul(seats, op.Add(size, one))
    first = op.Slice(on_diagonal, zero, m, zero)
    second = op.Slice(on_diagonal, m, size, zero)
    between = op.Add(first, m)
    rounds = op.Squeeze(op.Sub(size, one), zero)

    sweep = op.Constant(value_int=0)
    going = op.Greater(op.ReduceMax(op.Abs(op.Mul(work, others)), keepdims=0), enough)
    while going:
        for _ in range(rounds):
            entries = op.Reshape(work, flat)
            gap = op.Sub(op.Gather(entries, second, axis=1), op.Gather(entries, first, axis=1))
            pair = op.Gather(entries, between, axis=1)
            twice = op.Add(pair, pair)
            # t = tan of the smaller angle that annuls the pair, written without a quotient that could be 0 / 0.
            root = op.Sqrt(op.Add(op.Mul(gap, gap), op.Mul(twice, twice)))
            signed = op.Where(op.Less(gap, op.Sub(unit, unit)), op.Neg(twice), twice)
            t = op.Div(signed, op.Max(op.Add(op.Abs(gap), root), tiny))
            cosine = op.Reciprocal(op.Sqrt(op.Add(op.Mul(t, t), unit)))
            c = op.Unsqueeze(cosine, two)
            s = op.Unsqueeze(op.Mul(t, cosine), two)
            # Rows i and i + m of [A Vᵀ] are turned by their angle, then all take their next seats.
            both = op.Concat(work, vectors, axis=2)
            high = op.Slice(both, zero, m, one)
            low = op.Slice(both, m, size, one)
            upper = op.Sub(op.Mul(c, high), op.Mul(s, low))
            lower = op.Add(op.Mul(s, high), op.Mul(c, low))
            both = op.Gather(op.Concat(upper, lower, axis=1), moved, axis=1)
            vectors = op.Slice(both, size, op.Add(size, size), two)
            # The same for what is now A's columns.
            half = op.Transpose(op.Slice(both, zero, size, two), perm=[0, 2, 1])
            high = op.Slice(half, zero, m, one)
            low = op.Slice(half, m, size, one)
            upper = op.Sub(op.Mul(c, high), op.Mul(s, low))
            lower = op.Add(op.Mul(s, high), op.Mul(c, low))
            work = op.Gather(op.Concat(upper, lower, axis=1), moved, axis=1)
        sweep = sweep + 1
        rest = op.ReduceMax(op.Abs(op.Mul(work, others)), keepdims=0)
        going = op.And(op.Greater(rest, enough), op.Less(sweep, op.Constant(value_int=15)))

    diagonal = op.Gather(op.Reshape(work, flat), on_diagonal, axis=1)
    rising, order = op.TopK(diagonal, size, axis=1, largest=0, sorted=1)
    rows = op.GatherElements(vectors, op.Expand(op.Unsqueeze(order, two), op.Shape(vectors)), axis=1)
    columns = op.Transpose(rows, perm=[0, 2, 1])
    found = op.Slice(op.Slice(columns, more, size, two), zero, n, one)
    eigenvalues = op.Mul(op.Slice(rising, more, size, one), op.Squeeze(largest, two))
    return eigenvalues, found
