"""What the adapters share: somebody else's network, asked once what it puts out, then used like our own."""

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

    def __init__(self, network: nn.Module, *, name: str, preprocessing: Preprocessing, patch: tuple[int, int] | None):
        super().__init__(out_dim=1, preprocessing=preprocessing, stages=_stage_paths(network))
        self.name = name
        self.network = network
        self.patch = patch  # pixels a token covers, where the output is tokens
        self._grids: dict[tuple[int, int], tuple[int, int]] = {}
        self._unused: set[str] = set()

    # What a library supplies.

    def features(self, x: Tensor) -> Tensor:
        """The last feature map, or the last tokens, as the library gives them."""
        raise NotImplementedError

    def as_map(self, x: Tensor) -> Tensor:
        """A four-dimensional output as (B, h, w, C)."""
        return x.permute(0, 2, 3, 1)

    # What every adapter does.

    def run(self, x: Tensor, start: int, stop: int) -> Tensor:
        if start == stop:
            return x
        height, width = x.shape[-2:]
        y = self.features(x)
        if y.ndim == 4:
            return self.as_map(y).flatten(1, 2)
        h, w = self._patches(height, width)
        extra = y.shape[1] - h * w
        if y.ndim != 3 or not 0 <= extra <= 16:
            raise ConfigError(
                f"{self.name}: cannot tell local features in its output {tuple(y.shape)} for a {height}×{width} image"
            )
        return y[:, extra:]  # class and register tokens come first and belong to no place

    def tokens(self, x: Tensor) -> Tensor:
        return x

    def grid(self, height: int, width: int) -> tuple[int, int]:
        if self.patch is not None:
            return self._patches(height, width)
        if (height, width) not in self._grids:
            # Nobody but the network knows how it rounds; one blank image tells.
            modes = {module: module.training for module in self.network.modules()}
            self.network.eval()
            with torch.no_grad():
                _, h, w, _ = self.as_map(self.features(self._blank(height, width))).shape
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
            for parameter in self.network.parameters(
                recurse=False
            ):  # class token, positions: they enter before all stages
                parameter.requires_grad_(False)
        if self.frozen == "all":
            self.network.requires_grad_(False)

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        if self.frozen == "all":
            self.network.eval()
        return self

    def weights_module(self) -> nn.Module:
        return self.network

    def _count(self, stage: str | None) -> int:
        if stage is None or stage == "all" or stage in self.stages:
            return super()._count(stage)
        under = [index for index, path in enumerate(self.stages) if path.startswith(f"{stage}.")]
        if not under:
            raise UnknownName(f"stage of {self.name}", stage, [*self.stages, "all"])
        return under[-1] + 1

    def _patches(self, height: int, width: int) -> tuple[int, int]:
        if self.patch is None:
            raise ConfigError(f"{self.name}: its output is a row of tokens and nothing tells how they lie in the image")
        return height // self.patch[0], width // self.patch[1]

    def _blank(self, height: int, width: int) -> Tensor:
        weight = next(self.network.parameters())
        return torch.zeros(1, 3, height, width, dtype=weight.dtype, device=weight.device)

    def probe(self) -> None:
        """Learn from a blank image ``out_dim``, and which parameters do not touch local features (poolers, heads).

        These are never trained: a data-parallel trainer would wait for their gradient, weight decay would move them.
        """
        self.network.eval()
        size = self.preprocessing.size
        with torch.enable_grad():
            features = self.run(self._blank(size, size), 0, len(self.stages))
        if features.shape[1] == 0:
            raise ShapeError(f"{self.name}: no local features at its own input size of {size} pixels")
        self.out_dim = features.shape[-1]
        used = _leaves(features)
        for name, parameter in self.network.named_parameters():
            if parameter not in used:
                self._unused.add(name)
                parameter.requires_grad_(False)


def _leaves(output: Tensor) -> set[Tensor]:
    """The parameters that ``output`` was computed from, read off its autograd graph."""
    found, seen, queue = set(), set(), [output.grad_fn]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # a node that accumulates the gradient of a leaf
            found.add(node.variable)
        queue.extend(parent for parent, _ in node.next_functions)
    return found


def _stage_paths(network: nn.Module, prefix: str = "") -> list[str]:
    """Paths of the parts with parameters, in order; rows of blocks are listed block by block."""
    paths = []
    for name, child in network.named_children():
        path, parts = (
            f"{prefix}{name}",
            [part for part in child.children() if next(part.parameters(), None) is not None],
        )
        if next(child.parameters(), None) is None:
            continue
        if isinstance(child, (nn.ModuleList, nn.Sequential)) and len(parts) > 1:
            paths += [f"{path}.{index}" for index, part in child.named_children() if part in parts]
        elif len(parts) == 1 and next(child.parameters(recurse=False), None) is None:
            paths += _stage_paths(child, f"{path}.")  # an encoder that only holds its row of blocks
        else:
            paths.append(path)
    return paths
