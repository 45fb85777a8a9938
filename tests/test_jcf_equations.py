"""The JCF contraction against the paper's equations written as loops, and its gradients against finite differences."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from secondsight.functional.pooling import jcf_nearest
from secondsight.functional.pooling.jcf import jcf, jcf_local


def operands(b=2, length=5, n=4, d=3, o=2, *, dtype=torch.float64, seed=0):
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=dtype).requires_grad_()

    return {
        "x": draw(b, length, d),
        "h": draw(b, length, n),
        "uv": draw(n, d, 2 * o),
        "bias": draw(n, 2 * o),
        "y": draw(b, length, d),
        "g": draw(b, length, n),
    }


def by_loops(x, h, uv, bias=None, y=None, g=None):
    """z_i = Σ_l (Σ_n h_n (⟨U_ni, x⟩ + b_ni)) (Σ_n g_n (⟨V_ni, y⟩ + c_ni)), letter by letter."""
    b, length, d = x.shape
    n, _, o2 = uv.shape
    o = o2 // 2
    y = x if y is None else y
    g = h if g is None else g
    z = torch.zeros(b, o, dtype=x.dtype)
    for image in range(b):
        for place in range(length):
            for i in range(o):
                left = right = 0.0
                for j in range(n):
                    dot_u = sum(uv[j, k, i] * x[image, place, k] for k in range(d))
                    dot_v = sum(uv[j, k, o + i] * y[image, place, k] for k in range(d))
                    if bias is not None:
                        dot_u, dot_v = dot_u + bias[j, i], dot_v + bias[j, o + i]
                    left, right = left + h[image, place, j] * dot_u, right + g[image, place, j] * dot_v
                z[image, i] += left * right
    return z


FORMS = [(), ("bias",), ("y",), ("g",), ("y", "g"), ("bias", "y", "g")]


@pytest.mark.parametrize("form", FORMS, ids=lambda f: "+".join(f) or "plain")
def test_the_contraction_is_the_equation(form):
    all_ = operands()
    given_ = {k: v.detach() for k, v in all_.items() if k in ("x", "h", "uv", *form)}
    expected = by_loops(**given_)
    torch.testing.assert_close(jcf(**given_), expected)
    torch.testing.assert_close(jcf_local(**given_).sum(1), expected)


@pytest.mark.parametrize("form", [(), ("bias",), ("y",), ("bias", "y")], ids=lambda f: "+".join(f) or "plain")
def test_locations_with_one_projector_each_are_those_with_coefficients_of_zero_for_the_others(form):
    all_ = {k: v.detach() for k, v in operands().items()}
    given_ = {k: all_[k] for k in ("x", "uv", *form)}
    index = all_["h"].argmax(-1, keepdim=True)
    h = all_["h"].gather(-1, index)
    expected = jcf_local(**given_, h=torch.zeros_like(all_["h"]).scatter(-1, index, h))
    with torch.no_grad():
        torch.testing.assert_close(jcf_local(**given_, h=h, index=index), expected)
    torch.testing.assert_close(jcf_local(**given_, h=h, index=index), expected)


@pytest.mark.parametrize("rows", [1, 3, 7, 1000])
@pytest.mark.parametrize("form", FORMS, ids=lambda f: "+".join(f) or "plain")
def test_gradients_are_right_for_every_input_and_block_size(form, rows):
    given_ = {k: v for k, v in operands().items() if k in ("x", "h", "uv", *form)}
    names = list(given_)
    assert gradcheck(lambda *tensors: jcf(**dict(zip(names, tensors, strict=True)), rows=rows), list(given_.values()))


def test_gradients_can_be_differentiated_again():
    t = operands(1, 2, 2, 2, 2)
    assert gradgradcheck(lambda x, h, uv, bias: jcf(x, h, uv, bias=bias), [t["x"], t["h"], t["uv"], t["bias"]])


def sparse(n=5, k=2, b=2, length=6):
    g = torch.Generator().manual_seed(1)
    index = torch.stack([torch.randperm(n, generator=g)[:k] for _ in range(b * length)]).view(b, length, k)
    weights = torch.randn(b, length, k, generator=g, dtype=torch.float64).requires_grad_()
    return weights, index


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_routing_to_k_projectors_is_the_dense_sum_with_zeros(rows, k):
    t = operands(length=6, n=5)
    weights, index = sparse(k=k)
    dense = torch.zeros(2, 6, 5, dtype=torch.float64).scatter(2, index, weights.detach())
    got = jcf(t["x"], weights, t["uv"], bias=t["bias"], index=index, rows=rows)
    torch.testing.assert_close(got, jcf(t["x"], dense, t["uv"], bias=t["bias"]))
    assert gradcheck(
        lambda x, w, uv, bias: jcf(x, w, uv, bias=bias, index=index, rows=rows),
        [t["x"], weights, t["uv"], t["bias"]],
    )


def test_one_codeword_a_location_gives_the_same_by_blocks_and_can_be_differentiated_again(monkeypatch):
    t = {name: operand.detach() for name, operand in operands(length=3, n=5).items()}
    weights, index = sparse(k=1, length=3)
    whole = jcf(t["x"], weights.detach(), t["uv"], bias=t["bias"], index=index)
    monkeypatch.setattr(jcf_nearest, "ROWS", 3)
    torch.testing.assert_close(jcf(t["x"], weights.detach(), t["uv"], bias=t["bias"], index=index), whole)
    some = operands(1, 2, 3, 2, 2)
    arguments = [some["x"], weights.detach()[:1, :2].requires_grad_(), some["uv"], some["bias"]]
    assert gradgradcheck(lambda x, h, uv, bias: jcf(x, h, uv, bias=bias, index=index[:1, :2] % 3), arguments)


@pytest.mark.parametrize("k", [1, 2])
def test_a_projector_that_nobody_uses_is_never_touched(k):
    t = operands(length=6, n=5)
    weights, index = sparse(n=4, k=k)  # projector 4 is in no index
    uv = t["uv"].detach().clone()
    uv[4] = float("nan")
    uv.requires_grad_()
    z = jcf(t["x"], weights, uv, index=index)
    z.sum().backward()
    assert torch.isfinite(z).all()
    assert uv.grad is not None
    assert (uv.grad[4] == 0).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), st.integers(1, 70), st.integers(1, 200))
def test_the_block_size_changes_nothing_but_rounding(b, length, n, d, rows):
    t = {k: v.detach().float() for k, v in operands(b, length, n, d, 3).items()}
    whole = jcf(t["x"], t["h"], t["uv"], bias=t["bias"], rows=10**9)
    torch.testing.assert_close(jcf(t["x"], t["h"], t["uv"], bias=t["bias"], rows=rows), whole, rtol=1e-4, atol=1e-3)


def test_ten_thousand_locations_need_no_more_memory_than_their_factors():
    x, h, uv = torch.randn(1, 10_000, 64), torch.rand(1, 10_000, 32), torch.randn(32, 64, 32)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    import secondsight.functional.pooling.jcf as module

    with Watch(), torch.no_grad():
        module._factored(x, h, None, None, None, None, uv, None, 1024, False)
    assert largest <= max(1024 * 512, uv.numel(), x.numel()), "h ⊗ x of all locations would be 20,480,000 numbers"


def test_strided_inputs_give_the_same_gradients():
    t = operands(2, 6, 4, 3, 2)
    plain = torch.autograd.grad(jcf(t["x"], t["h"], t["uv"]).square().sum(), t["x"])[0]
    turned = t["x"].detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    assert not turned.is_contiguous()
    other = torch.autograd.grad(jcf(turned, t["h"], t["uv"], rows=4).square().sum(), turned)[0]
    torch.testing.assert_close(other, plain)


def test_the_operator_keeps_torchs_rules():
    t = operands()
    torch.library.opcheck(
        torch.ops.secondsight.jcf.default, (t["x"], t["h"], None, None, None, None, t["uv"], t["bias"], 16, True)
    )


def test_compiled_is_eager_in_value_and_gradient(unchecked):
    t = operands(dtype=torch.float32)
    run = torch.compile(lambda x, h, uv: jcf(x, h, uv).square().sum(), fullgraph=True, backend="aot_eager")
    inputs = [t["x"], t["h"], t["uv"]]
    got = torch.autograd.grad(run(*inputs), inputs)
    expected = torch.autograd.grad(jcf(*inputs).square().sum(), inputs)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_autocast_computes_in_half_and_stays_close():
    t = {k: v.detach().float() for k, v in operands(4, 16, 4, 8, 6).items()}
    exact = jcf(t["x"], t["h"], t["uv"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = jcf(t["x"], t["h"], t["uv"])
    assert half.dtype == torch.bfloat16
    assert ((half.float() - exact).norm() / exact.norm()).item() < 0.03


def test_exporting_uses_operations_that_exporters_know():
    t = {k: v.detach().float() for k, v in operands().items()}

    class Layer(torch.nn.Module):
        def forward(self, x, h, uv):
            return jcf(x, h, uv)

    exported = torch.export.export(Layer(), (t["x"], t["h"], t["uv"]))
    assert "secondsight" not in str(exported.graph)
    torch.testing.assert_close(exported.module()(t["x"], t["h"], t["uv"]), jcf(t["x"], t["h"], t["uv"]))
