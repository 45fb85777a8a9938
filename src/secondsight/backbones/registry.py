"""The one dictionary of backbones, and ``build``, which turns a name into a network with weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from secondsight.backbones import weights as weight_files
from secondsight.backbones.backbone import Backbone
from secondsight.backbones.hf import from_hf
from secondsight.backbones.lite import VARIANTS, EfficientNetLite
from secondsight.backbones.preprocessing import Preprocessing
from secondsight.backbones.resnet import ResNet50, resnet50_v1
from secondsight.backbones.timm import from_timm
from secondsight.backbones.vgg import VGG16
from secondsight.errors import ConfigError, UnknownName

BACKBONES: dict[str, Callable[..., Backbone]] = {
    "vgg16": VGG16,
    "resnet50": ResNet50,
    "resnet50-v1": resnet50_v1,
    **{f"efficientnet-lite{number}": partial(EfficientNetLite, variant) for number, variant in enumerate(VARIANTS)},
    "timm:NAME": from_timm,
    "hf:NAME": from_hf,
}
"""Name → what makes the network, with random weights; its keywords are the options of ``build``."""


def build(
    name: str,
    *,
    weights: str | Path | None = "default",
    freeze: str | None = None,
    freeze_norm: bool = False,
    preprocessing: Preprocessing | dict[str, Any] | None = None,
    **options: Any,
) -> Backbone:
    """The backbone called ``name``, ready to run.

    Args:
        name: a key of ``BACKBONES``; ``timm:NAME`` and ``hf:NAME`` take any model of these libraries.
        weights: ``"default"`` (published ImageNet weights, from a package or a hub), a ``.safetensors`` or ``.pth``
            file, ``"package"``, ``"hub:owner/repository/file"``, or None (also ``"random"``) for random ones.
        freeze: the last stage to freeze, ``"all"``, or None.
        freeze_norm: freeze the statistics and the affine part of every BatchNorm, also beyond ``freeze``.
        preprocessing: replaces the backbone's own, for weights that were trained on other pixels.
        options: those of the network, e.g. ``last_pool`` of vgg16, ``version`` of resnet50.

    >>> build("vgg16", weights=None, last_pool=False).grid(224, 224)
    (14, 14)
    """
    make, given = _maker(name, options)
    if ":" in name:  # the libraries fetch their own weights and know their own preprocessing
        model = name.partition(":")[2]
        backbone = make(model, pretrained=weights == "default", preprocessing=preprocessing, **given)
        weights = None if weights == "default" else weights
    else:
        backbone = make(**given)
    backbone.name = name
    backbone.options.update({option: value for option, value in given.items() if value is not None})
    if preprocessing is not None:
        backbone.use_preprocessing(Preprocessing.of(preprocessing))
    if weights is not None and weights != "random":
        _load(backbone, weights)
    if backbone.splits:
        # One memory format for weights and activations: no copy in between, and the faster kernels on CPUs and GPUs.
        backbone.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue] torch's own overload lacks it
    backbone.freeze(freeze, norm=freeze_norm)
    return backbone


def _maker(name: str, options: dict[str, Any]) -> tuple[Callable[..., Backbone], dict[str, Any]]:
    """What makes ``name``, and its options completed by their defaults."""
    kind, _, model = name.partition(":")
    key = f"{kind}:NAME" if model else name
    if key not in BACKBONES or model == "NAME":
        raise UnknownName("backbone", name, BACKBONES)
    make = BACKBONES[key]
    ours = {"model", "pretrained", "preprocessing"}  # an adapter's arguments that `build` gives itself
    known = inspect.signature(make).parameters
    valid = {option: known[option].default for option in known if option not in ours}
    for option in options:
        if option not in valid:
            general = ["weights", "freeze", "freeze_norm", "preprocessing"]
            raise UnknownName(f"option of {name}", option, [*valid, *general])
    return make, {**valid, **options}


def _load(backbone: Backbone, source: str | Path) -> None:
    wanted = backbone.default_weights if source == "default" else source
    if wanted is None:
        raise ConfigError(
            f"{backbone.name}: there are no default weights for it; pass weights=PATH, or weights=None for random ones"
        )
    path = weight_files.find(wanted, of=backbone.name)
    weight_files.load_into(backbone, weight_files.read(path), source=str(path))
