"""``hf:NAME``: any image model of transformers, from the hub or a directory; ViTs yield their patch tokens."""

from __future__ import annotations

import inspect
import json
from typing import Any

from torch import Tensor, nn

from secondsight.backbones.adapted import Adapted
from secondsight.backbones.preprocessing import Preprocessing
from secondsight.errors import ConfigError, WeightsError, first_line, require_known
from secondsight.extras import require

CLASS_TOKEN = ("out", "beside")


def from_hf(
    model: str,
    *,
    pretrained: bool = True,
    preprocessing: Preprocessing | dict[str, Any] | None = None,
    architecture: str | None = None,
    class_token: str = "out",
) -> HFBackbone:
    """``model`` is a name on the hub or a directory; ``architecture`` (its config as JSON) makes both superfluous.

    ``class_token``: ``"out"`` leaves a ViT's class token away; ``"beside"`` puts it beside every patch token, x =
    (patch, class). Second order then has products of the two, ⟨u, patch⟩ ⟨v, class⟩: the second factor sees it.
    """
    require_known("class_token", class_token, CLASS_TOKEN)
    transformers = require("transformers", extra="hf", purpose=f"backbone 'hf:{model}'")
    try:
        if architecture is not None:
            config = transformers.AutoConfig.for_model(**json.loads(architecture))
        else:
            config = transformers.AutoConfig.from_pretrained(model)
        if pretrained:
            network = transformers.AutoModel.from_pretrained(model, config=config)
        else:
            network = transformers.AutoModel.from_config(config)
    except (OSError, ValueError) as error:
        raise WeightsError(
            f"hf:{model} cannot be loaded: {first_line(error)} (without a network, download the model elsewhere and "
            "pass its directory as hf:DIRECTORY)"
        ) from error
    network = getattr(network, "vision_model", network)  # CLIP and its kin: the tower that sees
    if getattr(network, "main_input_name", None) != "pixel_values":
        raise ConfigError(
            f"hf:{model} is not an image model: it takes {getattr(network, 'main_input_name', '?')!r}, not pixels"
        )
    own = _preprocessing(model) if preprocessing is None else Preprocessing.of(preprocessing)
    return HFBackbone(network.float(), name=f"hf:{model}", preprocessing=own, class_token=class_token)


class HFBackbone(Adapted):
    """A network of transformers: its ``last_hidden_state``."""

    def __init__(self, network: nn.Module, *, name: str, preprocessing: Preprocessing, class_token: str = "out"):
        super().__init__(network, name=name, preprocessing=preprocessing)
        self.class_token = class_token
        self.options = {"architecture": _architecture(network.config)}
        # Plain ViTs insist on the size of their position grid unless told to interpolate it.
        knows = "interpolate_pos_encoding" in inspect.signature(network.forward).parameters
        self._asks = {"interpolate_pos_encoding": True} if knows else {}
        self.probe()

    network: Any

    def features(self, x: Tensor) -> Tensor:
        return self.network(pixel_values=x, **self._asks).last_hidden_state

    def patches(self, height: int, width: int) -> tuple[int, int]:
        config = self.network.config
        patch = getattr(config, "patch_size", None)
        if patch is None:
            raise ConfigError(
                f"{self.name}: its output is a row of tokens, and its config has no patch_size to place them"
            )
        down, right = (patch, patch) if isinstance(patch, int) else patch
        merges = len(getattr(config, "depths", [0])) - 1
        if merges == 0:
            return height // down, width // right
        # Hierarchical transformers (Swin) merge 2×2 tokens between stages, and pad wherever the grid is odd.
        return -(-height // (down * 2**merges)), -(-width // (right * 2**merges))


def _architecture(config: Any) -> str:
    content = json.loads(config.to_json_string(use_diff=True))
    irrelevant = (
        "_name_or_path",
        "architectures",
        "id2label",
        "label2id",
        "transformers_version",
        "dtype",
        "torch_dtype",
    )
    kept = {key: value for key, value in content.items() if key not in irrelevant}
    return json.dumps({**kept, "model_type": config.model_type}, sort_keys=True)


def _preprocessing(model: str) -> Preprocessing:
    """What the model's own image processor does to pixels, from its ``preprocessor_config.json``."""
    base = require("transformers.image_processing_base", extra="hf", purpose=f"backbone 'hf:{model}'")
    try:
        described, _ = base.ImageProcessingMixin.get_image_processor_dict(model)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"hf:{model} has no preprocessor_config.json within reach, so its mean and std are unknown; pass "
            f"preprocessing= ({first_line(error)})"
        ) from error
    normalised = described.get("do_normalize", True)
    return Preprocessing(
        mean=described["image_mean"] if normalised else (0, 0, 0),
        std=described["image_std"] if normalised else (1, 1, 1),
        channels="BGR" if described.get("do_flip_channel_order") else "RGB",
        range=255 * described.get("rescale_factor", 1 / 255) if described.get("do_rescale", True) else 255,
        size=_size(described.get("crop_size") if described.get("do_center_crop") else described.get("size")),
    )


def _size(described: Any) -> int:
    if isinstance(described, dict):
        described = described.get("height") or described.get("shortest_edge")
    return int(described or 224)
