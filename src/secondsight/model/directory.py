"""A model as a directory: ``config.toml``, ``model.safetensors``; where known, ``origin.json``, ``calibration.json``.

A directory may come from a stranger. Nothing in it is executed; its configuration is checked, and what it would build
is compared with the weight file's header, before any memory is taken; the stored fingerprint is compared after loading.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tomli_w
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from secondsight import calibration, files
from secondsight.data.readers.paths import require_path
from secondsight.errors import ConfigError, DataError, WeightsError, first_line
from secondsight.model import origin
from secondsight.model.config import FORMAT, ModelConfig
from secondsight.model.embedder import Embedder, digest
from secondsight.pooling.names import saved_name
from secondsight.strict_toml import read, validate

CONFIG, WEIGHTS = "config.toml", "model.safetensors"


def save(model: Embedder, directory: str | Path) -> None:
    """Write the model into ``directory``, replacing it as a whole."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # The weights are in the directory itself: where they came from once is no business of the reader's.
    config = model.config.model_dump(mode="python", exclude_none=True, exclude={"weights"})
    try:
        text = tomli_w.dumps({"format": FORMAT, **config})
    except TypeError as error:
        raise ConfigError(f"this model was built from parts that a file cannot describe: {error}") from error
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    with files.replacing_directory(directory) as fresh:
        try:
            save_file(weights, fresh / WEIGHTS, metadata={"format": "pt", "fingerprint": model.fingerprint()})
        except SafetensorError as error:
            raise _of_the_system(error, directory) from error
        (fresh / CONFIG).write_text(text, encoding="utf-8")
        if model.origin is not None:
            model.origin.write(fresh)
        if model.calibration is not None:
            calibration.write(model.calibration, fresh, model.fingerprint())


def _of_the_system(error: Exception, directory: str | Path) -> Exception:
    """A full disk as the ``OSError`` that it is; safetensors has only words for it, "… (os error 28)"."""
    found = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(found[1]), os.strerror(int(found[1])), str(directory)) if found else error


def load(directory: str | Path, *, device: str | torch.device = "cpu") -> Embedder:
    """The model in a model directory, the best one of a run, or that of an index, in evaluation mode.

    Its embeddings are those of the saved model, bit for bit.
    """
    from safetensors import SafetensorError, safe_open

    folder = model_folder(directory)
    config, legacy = read_config(folder / CONFIG)
    path = folder / WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            config = config.model_copy(update={"pooling": saved_name(config.pooling, shapes)})
            _check_fits(config, shapes, path)
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            stored = (file.metadata() or {}).get("fingerprint")
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, (WeightsError, ConfigError)):
            raise
        raise WeightsError(f"{path} is damaged or not a safetensors file ({error}); save or get it again") from error
    model = Embedder.from_config(config)
    _check_dtypes(model, weights, path)
    model.load_state_dict(weights)
    if stored is None and legacy is None:
        raise WeightsError(f"{path} has lost its fingerprint: copy the model again, or train it again")
    if stored is not None and stored != (model.fingerprint() if legacy is None else digest(legacy, model.state_dict())):
        raise WeightsError(
            f"{folder}: its configuration or its weights are not those that were saved (the fingerprint differs): copy "
            "the model again, or train it again"
        )
    model.origin = origin.read(folder)
    if (folder / calibration.FILE).is_file():
        model.calibration = calibration.read(folder, model.fingerprint())
    return model.to(device).eval()


def open_model(name: str | Path, *, weights: str = "default", device: str | torch.device = "cpu") -> Embedder:
    """What a person calls a model: a saved one, a run, an index, or a backbone as it is published, averaged."""
    path = Path(name)
    if path.is_dir():
        return load(path, device=device)
    text = str(name)
    if path.exists() or path.suffix in (".npy", ".safetensors", ".pth") or text.startswith((".", "/")):
        raise DataError(
            f"{name}: not a model; give a saved model's directory, a run's, or a backbone's name (see: secondsight "
            "backbones)"
        )
    if os.sep in text and not text.startswith(("hf:", "timm:")):  # the place of a model, and not a backbone's name
        require_path(path)
    return published(text, weights=weights).to(device)


def published(backbone: str, *, weights: str = "default", **keywords: Any) -> Embedder:
    """A backbone as it is published: its local features averaged, seen at the centre of an image."""
    from secondsight import backbones

    network = backbones.build(backbone, weights=weights)
    options = {"pooling": "average", "dim": network.out_dim, "transform": "resize-crop", **keywords}
    model = Embedder.build(backbone=network, **options)
    # The linear map that averaging starts with is a random rotation; none at all gives the same angles every time.
    weight = model.pooling.get_parameter("weight")
    with torch.no_grad():
        weight.copy_(torch.eye(*weight.shape))
    return model.eval()


def model_folder(directory: str | Path) -> Path:
    """Where the files of a model are: the folder itself, ``best/`` of a run, ``model/`` of an index."""
    folder = Path(directory)
    for inside in ("best", "model"):
        if not (folder / WEIGHTS).is_file() and (folder / inside / WEIGHTS).is_file():
            return folder / inside
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise WeightsError(f"{folder} is not a saved model: it has no {name}; name one, such as runs/photos")
    return folder


def read_config(path: Path) -> tuple[ModelConfig, dict[str, Any] | None]:
    """``config.toml``, checked, and of a directory in format 1 what its fingerprint was made of."""
    content, text = read(path)
    number = content.pop("format", 1)
    if number == 1:
        return _format_1(content, path)
    if number != FORMAT:
        raise ConfigError(
            f"{path}: format {number!r}; this version of secondsight reads formats 1 to {FORMAT}: a newer one is needed"
        )
    return validate(ModelConfig, {**content, "weights": "random"}, source=str(path), text=text), None


def _format_1(content: dict[str, Any], path: Path) -> tuple[ModelConfig, dict[str, Any]]:
    """Directories from before 0.2: backbone, reduction and pooling were tables of their own."""
    known = {"backbone", "reduction", "pooling", "size", "transform", "mirror", "keep", "normalise"}
    strange = sorted(content.keys() - known)
    backbone, reduction, pooling = (content.get(key) for key in ("backbone", "reduction", "pooling"))
    if strange or not isinstance(backbone, dict) or not isinstance(pooling, dict) or "name" not in backbone:
        raise ConfigError(
            f"{path}: not a model's configuration: unknown key {strange[0] if strange else 'or no name'!r}"
        )
    options = dict(backbone)
    reduced = {"dim": 256, "norm_exponent": 1.0, "learn_exponent": False, **(reduction or {})} if reduction else None
    pooled = {"name": "jcf-32-8", "dim": 512, "options": {}, **pooling}
    flat = {
        "backbone": options.pop("name"),
        "weights": "random",
        "freeze": options.pop("freeze", None),
        "freeze_norm": options.pop("freeze_norm", False),
        "backbone_options": options,
        "reduce": 0 if reduced is None else reduced.get("dim"),
        **({} if reduced is None else {k: reduced[k] for k in ("norm_exponent", "learn_exponent")}),
        "pooling": pooled["name"],
        "dim": pooled["dim"],
        "pooling_options": pooled["options"],
        **{key: content[key] for key in ("size", "transform", "mirror", "keep", "normalise") if key in content},
    }
    written = {
        "format": 1,
        "backbone": backbone,
        "reduction": reduced,
        "pooling": pooled,
        "size": None,
        "transform": "resize",
        "mirror": False,
        "keep": None,
        "normalise": [],
        **{key: value for key, value in content.items() if key not in ("backbone", "reduction", "pooling")},
    }
    return validate(ModelConfig, flat, source=str(path)), written


def _check_fits(config: ModelConfig, shapes: dict[str, tuple[int, ...]], path: Path) -> None:
    """Build the model without memory and compare every shape with the weight file's."""
    try:
        with torch.device("meta"), _ShapesOnly():
            own = {name: tuple(tensor.shape) for name, tensor in Embedder.from_config(config).state_dict().items()}
    except (RuntimeError, TypeError, OverflowError, RecursionError) as error:  # sizes that no tensor can have
        raise ConfigError(f"{path.parent / CONFIG}: this model cannot be built: {first_line(error)}") from error
    missing, unexpected = sorted(own.keys() - shapes.keys()), sorted(shapes.keys() - own.keys())
    if missing or unexpected:
        raise WeightsError(
            f"{path} does not fit its config: missing {missing or 'nothing'}, unexpected {unexpected or 'nothing'}"
        )
    for name, shape in shapes.items():
        if shape != own[name]:
            raise WeightsError(f"{path}: {name} has shape {shape}, the config asks for {own[name]}")


class _ShapesOnly(TorchFunctionMode):
    """Leaves out the numbers: for arithmetic without memory torch would import its compiler, which takes a second."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in _SAME_SHAPE:
            return args[0]
        if func is torch.eye:
            func, args = torch.empty, (args[0], args[-1])
        return (torch.empty if func is torch.randn else func)(*args, **kwargs or {})


_SAME_SHAPE = {Tensor.fill_, Tensor.log, Tensor.mul_, Tensor.normal_, nn.functional.normalize}


def _check_dtypes(model: Embedder, weights: dict[str, Tensor], path: Path) -> None:
    """Floating point stays floating point: integers in its place would be cast without a word."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() != weights[name].is_floating_point():
            raise WeightsError(f"{path}: {name} is {weights[name].dtype}, the model needs {tensor.dtype}")


def describe(directory: str | Path) -> dict[str, Any]:
    """What a model is, without loading its weights: its configuration, size in bytes, fingerprint and origin."""
    from safetensors import safe_open

    folder = model_folder(directory)
    config, _ = read_config(folder / CONFIG)
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        fingerprint = (file.metadata() or {}).get("fingerprint")
    source = origin.read(folder)
    return {
        "config": json.loads(config.model_dump_json(exclude={"weights"})),
        "bytes": (folder / WEIGHTS).stat().st_size,
        "fingerprint": fingerprint,
        "origin": None if source is None else asdict(source),
    }
