"""Matrix decompositions that ONNX does not have, written with the operators that it has.

Symmetric eigenproblems by Jacobi's method (see ``jacobi``); Cholesky factors and triangular systems column by column.
Poolings need the latter of parameters alone, so that exporting computes them once and for all.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

import secondsight.functional.pooling.jcf  # noqa: F401 registers the operator
from secondsight.inference import routing


@cache
def translations() -> dict[Callable, Callable]:
    """torch's operators, and our own → functions that write ONNX: the exporter's ``custom_translation_table``."""
    return {
        torch.ops.secondsight.jcf.default: routing.jcf,
        torch.ops.aten._linalg_eigh.default: _eigh,
        torch.ops.aten.linalg_cholesky_ex.default: _cholesky,
        torch.ops.aten.linalg_solve_triangular.default: _solve_triangular,
    }


def _eigh(A, UPLO: str = "L", compute_v: bool = True):
    """(values rising, vectors) of symmetric matrices (b, n, n) of any size."""
    from secondsight.inference.jacobi import symmetric_eigen  # in onnxscript's dialect, which needs the package

    return symmetric_eigen(A)


def _cholesky(self, upper: bool = False, check_errors: bool = False):
    """(C, 0) with C Cᵀ = A, lower, of matrices of a known size."""
    op = _words()

    assert not upper
    n, columns = int(self.shape[-1]), []
    for j in range(n):
        column = _column(op, self, j)
        for k in range(j):
            column = op.Sub(column, op.Mul(columns[k], _row(op, columns[k], j)))
        # Rounding leaves something above the diagonal: zero there.
        below = op.Constant(value_floats=[float(i >= j) for i in range(n)])
        below = op.Reshape(below, op.Constant(value_ints=[n, 1]))
        columns.append(op.Mul(below, op.Div(column, op.Sqrt(_row(op, column, j)))))
    return op.Concat(*columns, axis=-1), op.Constant(value_int=0)


def _solve_triangular(self, B, upper: bool = False, left: bool = True, unitriangular: bool = False):
    """X with L X = B, L lower triangular and of a known size, by forward substitution."""
    op = _words()

    assert left
    assert not upper
    assert not unitriangular
    n, rows = int(self.shape[-1]), []
    for j in range(n):
        row = _row(op, B, j)
        for k in range(j):
            row = op.Sub(row, op.Mul(_row(op, _column(op, self, k), j), rows[k]))
        rows.append(op.Div(row, _row(op, _column(op, self, j), j)))
    return op.Concat(*rows, axis=-2)


def _words() -> Any:
    """ONNX's operators."""
    from onnxscript import opset18

    return opset18


def _column(op: Any, x: Any, j: int) -> Any:
    """(…, n, 1)."""
    return op.Slice(x, *(op.Constant(value_ints=[i]) for i in (j, j + 1, -1)))


def _row(op: Any, x: Any, j: int) -> Any:
    """(…, 1, m)."""
    return op.Slice(x, *(op.Constant(value_ints=[i]) for i in (j, j + 1, -2)))
