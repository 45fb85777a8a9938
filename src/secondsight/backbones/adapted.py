"""What the adapters share: another library's network, probed once for its output, then used like our own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from secondsight.backbones.backbone import Backbone
from secondsight.backbones.preprocessing import Preprocessing
from secondsight.errors import ConfigError, ShapeError, UnknownName


class Adapted(Backbone):
    """A foreign ``network``. Its output may be a map (B, C, h, w), (B, h, w, C), or tokens (B, T, C).

    Stages are the paths of its parts in the order in which it lists them (``embeddings``, ``encoder.layer.0`` …); a
    path above several of them (``encoder``) means the last. Its code cannot be stopped half-way, so a prefix short of
    ``"all"`` is frozen in place and ``frozen_part`` is the preprocessing alone.
    """

    splits = False

    def __init__(self, network: nn.Module, *, name: str, preprocessing: Preprocessing):
        super().__init__(out_dim=1, preprocessing=preprocessing, stages=_stage_paths(network))
        self.name = name
        self.network = network
        self.extra_tokens: int | None = None  # tokens that belong to no place; None where the output is a map
        self.class_token = "out"  # left out, or "beside" every patch token
        self._grids: dict[tuple[int, int], tuple[int, int]] = {}
        self._unused: set[str] = set()

    # What a library supplies.

    def features(self, x: Tensor) -> Tensor:
        """The last feature map, or the last tokens, as the library gives them."""
        raise NotImplementedError

    def as_map(self, x: Tensor) -> Tensor:
        """A four-dimensional output as (B, h, w, C)."""
        return x.permute(0, 2, 3, 1)

    def patches(self, height: int, width: int) -> tuple[int, int]:
        """(h, w) of the patch tokens, where the output is tokens."""
        raise NotImplementedError

    # What every adapter does.

    def run(self, x: Tensor, start: int, stop: int) -> Tensor:
        if start == stop:
            return x
        y = self._answer(x)
        if self.extra_tokens is None:
            return self.as_map(y).flatten(1, 2)
        h, w = self.patches(*x.shape[-2:])
        if y.shape[1] != self.extra_tokens + h * w:
            raise ShapeError(
                f"{self.name}: {y.shape[1]} tokens for an image of {x.shape[-2]}×{x.shape[-1]} pixels, not {h}×{w}"
            )
        patches = y[:, self.extra_tokens :]  # the class token comes first, then registers
        if self.class_token == "out":
            return patches
        return torch.cat([patches, y[:, :1].expand_as(patches)], dim=-1)

    def tokens(self, x: Tensor) -> Tensor:
        return x

    def grid(self, height: int, width: int) -> tuple[int, int]:
        if self.extra_tokens is not None:
            return self.patches(height, width)
        if (height, width) not in self._grids:
            # Nobody but the network knows how it rounds; one blank image tells.
            modes = {module: module.training for module in self.network.modules()}
            self.network.eval()
            with torch.no_grad():
                _, h, w, _ = self.as_map(self._answer(self._blank(height, width))).shape
            for module, mode in modes.items():
                module.training = mode
            self._grids[height, width] = (h, w)
        return self._grids[height, width]

    def stage_modules(self, stage: str) -> Iterable[nn.Module]:
        return (self.network.get_submodule(stage),)

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for name, parameter in self.network.named_parameters() if name not in self._unused)

    def freeze(self, stage: str | None, *, norm: bool = False) -> None:
        super().freeze(stage, norm=norm)
        if self.frozen is not None:
            for parameter in self.network.parameters(recurse=False):  # class token, positions: used before all stages
                parameter.requires_grad_(False)
        if self._cut:
            self.network.requires_grad_(False)

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        if self._cut:
            self.network.eval()
        return self

    def prefix_modules(self) -> Iterator[nn.Module]:
        return iter((self.network,) if self._cut else ())

    def weights_module(self) -> nn.Module:
        return self.network

    def _count(self, stage: str | None) -> int:
        if stage is None or stage == "all" or stage in self.stages:
            return super()._count(stage)
        under = [index for index, path in enumerate(self.stages) if path.startswith(f"{stage}.")]
        if not under:
            raise UnknownName(f"stage of {self.name}", stage, [*self.stages, "all"])
        return under[-1] + 1

    def _answer(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return self.features(x)
        try:
            return self.features(x)
        except (AssertionError, ValueError) as error:  # how both libraries refuse a size
            raise ShapeError(f"{self.name} refuses an image of {x.shape[-2]}×{x.shape[-1]} pixels: {error}") from error

    def _blank(self, height: int, width: int) -> Tensor:
        weight = next(self.network.parameters())
        return torch.zeros(1, 3, height, width, dtype=weight.dtype, device=weight.device)

    def probe(self) -> None:
        """Learn from a blank image how the network answers, and which of its parameters play no part in that.

        The latter (poolers, heads, mask tokens) are never trained: a data-parallel trainer would wait for their
        gradient, and weight decay would move them.
        """
        self.network.eval()
        size = self.preprocessing.size
        with torch.enable_grad():
            features = self._answer(self._blank(size, size))
        if features.ndim == 3:
            h, w = self.patches(size, size)
            self.extra_tokens = features.shape[1] - h * w
            if not 0 <= self.extra_tokens <= 16:
                raise ConfigError(
                    f"{self.name}: no patch tokens in its output {tuple(features.shape)} at {size} pixels"
                )
            self.out_dim = features.shape[-1] * (2 if self.class_token == "beside" else 1)
        else:
            _, h, w, self.out_dim = self.as_map(features).shape
            self._grids[size, size] = (h, w)
        if self.class_token == "beside" and not self.extra_tokens:
            raise ConfigError(f"{self.name} has no class token to put beside its features: leave class_token = 'out'")
        used = _leaves(features)
        for name, parameter in self.network.named_parameters():
            if parameter not in used:
                self._unused.add(name)
                parameter.requires_grad_(False)
        self.stages = tuple(
            stage for stage in self.stages if any(p in used for p in self.network.get_submodule(stage).parameters())
        )


def _leaves(output: Tensor) -> set[Tensor]:
    """The parameters that ``output`` was computed from, read off its autograd graph."""
    found, seen, queue = set(), set(), [output.grad_fn]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)  # only nodes that accumulate the gradient of a leaf have one
        if leaf is not None:
            found.add(leaf)
        queue.extend(parent for parent, _ in node.next_functions)
    return found


def _stage_paths(network: nn.Module, prefix: str = "") -> list[str]:
    """Paths of the parts with parameters, in order; rows of blocks are listed block by block."""
    paths = []
    for name, child in network.named_children():
        if next(child.parameters(), None) is None:
            continue
        path = f"{prefix}{name}"
        parts = [part for part in child.children() if next(part.parameters(), None) is not None]
        if isinstance(child, (nn.ModuleList, nn.Sequential)) and len(parts) > 1:
            paths += [f"{path}.{index}" for index, part in child.named_children() if part in parts]
        elif len(parts) == 1 and next(child.parameters(recurse=False), None) is None:
            paths += _stage_paths(child, f"{path}.")  # an encoder that only holds its row of blocks
        else:
            paths.append(path)
    return paths
