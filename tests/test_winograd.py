"""Winograd's convolution: the sum that it stands for, written as a loop; its gradients; its rounding."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from secondsight.backbones import winograd
from secondsight.backbones.vgg import WIDE, Conv3x3
from secondsight.backbones.winograd import conv3x3

SIZES = [(4, 4), (14, 14), (7, 9), (1, 1), (2, 5)]


def naive(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """y_o(r, c) = Σ_i Σ_{a,b} w_oi(a, b) x_i(r + a − 1, c + b − 1), zero outside of the image."""
    b, _, h, w = x.shape
    y = x.new_zeros(b, len(weight), h, w)
    for row in range(h):
        for column in range(w):
            for a in range(3):
                for c in range(3):
                    at = row + a - 1, column + c - 1
                    if 0 <= at[0] < h and 0 <= at[1] < w:
                        y[:, :, row, column] += x[:, :, at[0], at[1]] @ weight[:, :, a, c].T
    return y


@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_sum_over_the_neighbours(size):
    x, weight = torch.randn(2, 3, *size, dtype=torch.float64), torch.randn(5, 3, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(conv3x3(x, weight), naive(x, weight))
    bias = torch.randn(5, dtype=torch.float64)
    torch.testing.assert_close(conv3x3(x, weight, bias), naive(x, weight) + bias[:, None, None])


@pytest.mark.parametrize("size", SIZES)
def test_gradients(size):
    x = torch.randn(2, 2, *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(conv3x3, (x, weight, bias))


def test_second_derivatives_and_one_gradient_at_a_time():
    x = torch.randn(1, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(conv3x3, (x, weight))
    assert torch.autograd.gradcheck(lambda x: conv3x3(x, weight.detach()), (x,))
    assert torch.autograd.gradcheck(lambda weight: conv3x3(x.detach(), weight), (weight,))


def test_a_few_images_at_a_time_give_the_same(monkeypatch):
    x = torch.randn(7, 4, 6, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 4, 3, 3, dtype=torch.float64, requires_grad=True)

    def all_of_it() -> list[torch.Tensor]:
        y = conv3x3(x, weight)
        return [y, *torch.autograd.grad(y.square().sum(), (x, weight))]

    whole = all_of_it()
    monkeypatch.setattr(winograd, "BLOCK", 2 * 36 * 4 * 4)  # two images
    for one, other in zip(whole, all_of_it(), strict=True):
        torch.testing.assert_close(one, other)


def test_its_rounding_is_small_beside_the_plain_ones():
    x, weight = torch.randn(4, 256, 14, 14).relu(), torch.randn(256, 256, 3, 3)
    exact = F.conv2d(x.double(), weight.double(), padding=1)
    error = (conv3x3(x, weight).double() - exact).norm() / exact.norm()
    assert error < 1e-5


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_the_layer_of_the_network_is_a_plain_convolution_to_everyone_else(memory_format):
    torch.manual_seed(0)
    layer = Conv3x3(WIDE, WIDE)
    x = torch.randn(2, WIDE, 6, 6).to(memory_format=memory_format)
    torch.testing.assert_close(layer(x), F.conv2d(x, layer.weight, layer.bias, padding=1), atol=1e-4, rtol=1e-4)
    assert set(layer.state_dict()) == {"weight", "bias"}
    exported = torch.export.export(layer, (x,))
    assert any("conv2d" in str(node.target) for node in exported.graph.nodes), "one convolution, not its parts"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x[:1, :, :2, :2]).dtype == torch.bfloat16
    assert layer.to(torch.float64)(x.double()).dtype == torch.float64


def test_narrow_layers_take_the_plain_way(monkeypatch):
    monkeypatch.setattr("secondsight.backbones.vgg.conv3x3", None)
    assert Conv3x3(3, 64)(torch.randn(1, 3, 4, 4)).shape == (1, 64, 4, 4)
