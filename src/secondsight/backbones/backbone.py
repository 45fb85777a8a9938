"""The contract that every backbone keeps: an image becomes local features; a prefix of the network can be frozen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from secondsight.backbones.preprocessing import Preprocessing, check_images
from secondsight.errors import ShapeError, UnknownName


class Backbone(nn.Module):
    """``forward(images: (B, 3, H, W)) -> (B, L, d_in)``; images are RGB, uint8 in 0–255 or floating point in 0–1.

    The network is a row of named ``stages``. ``freeze("conv4")`` freezes everything up to and including that stage: its
    parameters get no gradient, and its BatchNorm stays in evaluation mode whatever ``train()`` says. ``frozen_part``
    computes exactly that prefix (so its result may be cached) and ``live_part`` the rest:
    ``forward(x) == live_part(frozen_part(x))``, bit for bit.
    """

    aliases: ClassVar[dict[str, str]] = {}
    """Other words for a stage, e.g. the paper's."""

    splits: ClassVar[bool] = True
    """Whether the computation can stop between two stages; where not, only ``freeze="all"`` makes a ``frozen_part``."""

    default_weights: str | None = None
    """What ``weights="default"`` means: ``package``, ``hub:…``, or None where there is nothing to fetch."""

    version: str | None = None
    """Which of several networks with the same parameter names this is."""

    leaves_out: tuple[str, ...] = ("fc.", "_fc.", "classifier.", "head.", "pre_logits.")
    """Beginnings of names that a weight file may hold and the network has no use for: heads of classifiers."""

    layers: tuple[int, ...] = ()
    """Channels of each layer whose features it gives side by side; empty where that is the last one alone."""

    scale: Tensor
    shift: Tensor

    def __init__(self, *, out_dim: int, preprocessing: Preprocessing, stages: Iterable[str]):
        super().__init__()
        self.name = type(self).__name__.lower()  # `build` puts the name and the options it was asked for
        self.options: dict[str, Any] = {}
        self.out_dim = out_dim
        self.stages = tuple(stages)
        self.frozen: str | None = None
        self.freeze_norm = False
        self._frozen_stages = 0
        self._own_preprocessing = preprocessing
        self.preprocessing = preprocessing
        scale, shift = preprocessing.affine()
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("shift", shift, persistent=False)

    # What a network supplies.

    def stage_modules(self, stage: str) -> Iterable[nn.Module]:
        """The modules of one stage, in the order in which they run."""
        raise NotImplementedError

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """(h, w) of the local features of an image of that size; L = h · w, location l = row · w + column."""
        raise NotImplementedError

    # What every network does.

    def forward(self, images: Tensor) -> Tensor:
        return self.live_part(self.frozen_part(images))

    def frozen_part(self, images: Tensor) -> Tensor:
        """Preprocessing and the frozen stages: deterministic and without gradient, so it may be cached."""
        check_images(images, of=self.name)
        if not torch.compiler.is_compiling() and 0 in self.grid(*images.shape[-2:]):
            raise ShapeError(
                f"{self.name}: an image of {images.shape[-2]}×{images.shape[-1]} pixels is too small for it"
            )
        if self.frozen is None:
            return self.prepare(images)
        with torch.no_grad():
            x = self.run(self.prepare(images), 0, self._cut)
            return self.tokens(x) if self._cut == len(self.stages) else x

    def live_part(self, activations: Tensor) -> Tensor:
        """The rest of the network, from what ``frozen_part`` gave (possibly stored in half precision meanwhile)."""
        x = activations.to(self._dtype)
        if self._cut == len(self.stages):
            return x
        if x.ndim == 4:  # a cache may hand back another memory format, and another format rounds differently
            x = x.contiguous(memory_format=torch.channels_last)
        return self.tokens(self.run(x, self._cut, len(self.stages)))

    def prepare(self, images: Tensor) -> Tensor:
        """``scale · x + shift``, in the channel order and the dtype of the network."""
        # The product is taken in at least single precision: uint8 images and half-precision networks lose nothing.
        x = images.to(torch.promote_types(self._dtype, torch.float32))
        if self.preprocessing.channels == "BGR":
            x = x.flip(1)
        scale = self.scale / 255 if images.dtype == torch.uint8 else self.scale
        scale, shift = scale.to(x.dtype), self.shift.to(x.dtype)
        # Exported, addcmul would be one more pass over all pixels: times 1, times scale, plus shift.
        x = x * scale + shift if torch.compiler.is_exporting() else torch.addcmul(shift, x, scale)
        return x.to(self._dtype).contiguous(memory_format=torch.channels_last)

    def run(self, x: Tensor, start: int, stop: int) -> Tensor:
        """The stages ``start`` … ``stop − 1`` of the network."""
        for stage in self.stages[start:stop]:
            for module in self.stage_modules(stage):
                x = module(x)
        return x

    def tokens(self, x: Tensor) -> Tensor:
        """(B, d_in, h, w) → (B, L, d_in), without a copy where ``x`` is channels-last."""
        b, d, h, w = x.shape
        return x.permute(0, 2, 3, 1).reshape(b, h * w, d)

    def freeze(self, stage: str | None, *, norm: bool = False) -> None:
        """Freeze up to and including ``stage`` ("all"; None: nothing), and with ``norm`` every BatchNorm beyond it."""
        self._frozen_stages = self._count(stage)
        self.frozen = None if stage is None else "all" if stage == "all" else self.stages[self._frozen_stages - 1]
        self.freeze_norm = norm
        for parameter in self.trainable_parameters():
            parameter.requires_grad_(True)
        for module in self._still_modules():
            module.requires_grad_(False)
        self.train(self.training)

    def weights_module(self) -> nn.Module:
        """The module whose parameter names weight files use."""
        return self

    def trainable_parameters(self) -> Iterator[nn.Parameter]:
        """Every parameter that could be trained if nothing were frozen."""
        return self.parameters()

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        for module in self._still_modules():
            module.eval()
        return self

    @property
    def config(self) -> dict[str, Any]:
        """``build(**config, weights=None)`` makes the same network, ready for ``load_state_dict``; TOML can hold it."""
        config: dict[str, Any] = {"name": self.name, **self.options}
        if self.frozen is not None:
            config["freeze"] = self.frozen
        if self.freeze_norm:
            config["freeze_norm"] = True
        if self.preprocessing != self._own_preprocessing or not self.splits:
            config["preprocessing"] = self.preprocessing.as_dict()
        return config

    def use_preprocessing(self, preprocessing: Preprocessing) -> None:
        """Replace the network's own preprocessing, for weights that were trained with another."""
        self.preprocessing = preprocessing
        scale, shift = preprocessing.affine()
        self.scale, self.shift = scale.to(self.scale), shift.to(self.shift)

    @property
    def prefix_name(self) -> str:
        """What ``frozen_part`` computes, in words: ``vgg16 up to conv4``, or the name alone where it is all of it."""
        return self.name if self._cut == len(self.stages) else f"{self.name} up to {self.stages[self._cut - 1]}"

    def prefix_fingerprint(self) -> str:
        """A hex hash of all that ``frozen_part`` depends on: network, freeze point, preprocessing, weights.

        Options that only change what comes later (``head``, ``last_pool``) are not in it: their runs share a cache.
        """
        described = {
            "name": self.name,
            "stages": self.stages[: self._cut],
            "preprocessing": self.preprocessing.as_dict(),
            "options": {} if self.splits else self.options,
        }
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
        for module in self.prefix_modules():
            digest.update(str(module).encode())  # kernels, strides, …
            for name, tensor in module.state_dict().items():
                if not name.endswith("num_batches_tracked"):  # counts batches, changes nothing
                    digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                    digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()

    def prefix_modules(self) -> Iterator[nn.Module]:
        """The modules that ``frozen_part`` runs."""
        for stage in self.stages[: self._cut]:
            yield from self.stage_modules(stage)

    @property
    def _cut(self) -> int:
        """How many stages ``frozen_part`` computes."""
        return self._frozen_stages if self.splits or self._frozen_stages == len(self.stages) else 0

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def _count(self, stage: str | None) -> int:
        if stage is None:
            return 0
        if stage == "all":
            return len(self.stages)
        name = self.aliases.get(stage, stage)
        if name not in self.stages:
            raise UnknownName(f"stage of {self.name}", stage, [*self.stages, *self.aliases, "all"])
        return self.stages.index(name) + 1

    def _still_modules(self) -> Iterator[nn.Module]:
        """Modules that training leaves alone: the frozen prefix and, if asked for, every BatchNorm."""
        for stage in self.stages[: self._frozen_stages]:
            yield from self.stage_modules(stage)
        if self.freeze_norm:
            yield from (module for module in self.modules() if isinstance(module, _BatchNorm))
