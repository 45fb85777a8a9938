"""``timm:NAME``: any model of timm; vision transformers yield their patch tokens."""

from __future__ import annotations

import difflib
from typing import Any

from torch import Tensor, nn

from secondsight.backbones.adapted import Adapted
from secondsight.backbones.preprocessing import Preprocessing
from secondsight.errors import ConfigError, MissingExtra, UnknownName, WeightsError
from secondsight.extras import require


def from_timm(
    model: str, *, pretrained: bool = True, preprocessing: Preprocessing | dict[str, Any] | None = None
) -> TimmBackbone:
    """``model`` is a name of timm's, with or without the tag of its weights: ``vit_small_patch14_dinov2.lvd142m``."""
    timm = _timm(model)
    if not model.startswith(("hf_hub:", "hf-hub:", "local-dir:")) and not timm.is_model(model.split(".")[0]):
        near = difflib.get_close_matches(model, timm.list_models(), n=8, cutoff=0.4)  # of more than a thousand
        raise UnknownName("timm model", model, near)
    network = _create(timm, model, pretrained)
    if preprocessing is None:
        data = timm.data.resolve_model_data_config(network)
        preprocessing = Preprocessing(mean=data["mean"], std=data["std"], size=data["input_size"][-1])
    return TimmBackbone(network, name=f"timm:{model}", preprocessing=Preprocessing.of(preprocessing))


class TimmBackbone(Adapted):
    """A network of timm: its ``forward_features``."""

    def __init__(self, network: nn.Module, *, name: str, preprocessing: Preprocessing):
        super().__init__(network, name=name, preprocessing=preprocessing)
        self.probe()

    network: Any

    def features(self, x: Tensor) -> Tensor:
        return self.network.forward_features(x)

    def patches(self, height: int, width: int) -> tuple[int, int]:
        embed = getattr(self.network, "patch_embed", None) or getattr(self.network, "stem", None)
        patch = getattr(embed, "patch_size", None)
        if patch is None:
            raise ConfigError(f"{self.name}: its output is a row of tokens, and it has no patch size to place them")
        down, right = (patch, patch) if isinstance(patch, int) else patch
        return height // down, width // right

    def as_map(self, x: Tensor) -> Tensor:
        return x if getattr(self.network, "output_fmt", "NCHW") == "NHWC" else super().as_map(x)


def _timm(model: str) -> Any:
    try:
        return require("timm", extra="timm", purpose=f"backbone 'timm:{model}'")
    except MissingExtra:
        raise
    except Exception as error:
        # timm imports torchvision, and a torchvision made for another torch fails while being imported.
        raise MissingExtra(
            f"backbone 'timm:{model}': timm is installed but cannot be imported ({type(error).__name__}: {error}); "
            "it needs a torchvision made for the installed torch"
        ) from error


def _create(timm: Any, model: str, pretrained: bool) -> nn.Module:
    try:
        try:  # transformers of timm refuse other image sizes unless told; other networks do not know the word
            return timm.create_model(model, pretrained=pretrained, num_classes=0, dynamic_img_size=True)
        except TypeError:
            return timm.create_model(model, pretrained=pretrained, num_classes=0)
    except Exception as error:  # the hub's errors, and those of the network libraries below it
        raise WeightsError(
            f"timm:{model} cannot be created: {type(error).__name__}: {error}; without a network pass weights=PATH, "
            "or weights=None for random ones"
        ) from error
