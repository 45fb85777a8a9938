"""A model as one ONNX graph: uint8 RGB pixels in, unit vectors out, with everything in between.

``torch.export`` traces, ``torch.onnx`` translates, and a few rewritings follow that change nothing but the cost. Of
onnxscript's own list the ones that remove "+ 0" are left out: they take 1e-10, which keeps zeros from becoming NaN,
for zero.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from secondsight.errors import ConfigError, SecondsightError
from secondsight.extras import require
from secondsight.inference.decompositions import translations
from secondsight.model import Embedder
from secondsight.model.views import VIEWS

MULTIPLE = 32
"""Sides of images may vary by this step where they may vary: every network here halves five times, some with rounding
that only such sides do without.
"""

LARGEST = 64 * MULTIPLE
OPSET = 18


class Pixels(nn.Module):
    """The model's ``forward``, with an image and its mirror image in one batch: one copy of the network in the file.

    ``half`` puts the backbone, where the time goes, into half precision; second-order sums would leave its range.
    """

    def __init__(self, model: Embedder, *, half: bool = False):
        super().__init__()
        if half:
            model = copy.deepcopy(model)
            model.backbone.half()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        model = self.model
        grid = model.backbone.grid(*images.shape[-2:])
        views = [VIEWS[view](images) for view in model.views]
        x = torch.cat(views) if len(views) > 1 else images
        z = model.pool(model.backbone(x).float(), grid=grid)
        if len(views) > 1:
            z = z.reshape(len(views), -1, z.shape[-1]).mean(0)
        return model.normalise(z).float()


def graph(module: nn.Module, images: Tensor, *, multiple: int = 0) -> Any:
    """The ``onnx.ModelProto`` of a module that takes images; any number of them, of sides that are multiples."""
    require("onnxscript", extra="onnx", purpose="exporting to ONNX")
    batch = torch.export.Dim("batch", min=1, max=1 << 20)
    dynamic: dict[int, Any] = {0: batch}
    if multiple:
        most = max(LARGEST, 4 * max(images.shape[-2:])) // multiple
        for axis, name in ((2, "rows"), (3, "columns")):
            dynamic[axis] = multiple * torch.export.Dim(name, min=2, max=most)
    return translated(module, (images,), (dynamic,), inputs=["images"], outputs=["vectors"])


def translated(
    module: nn.Module, args: tuple[Tensor, ...], dynamic: Any, *, inputs: list[str], outputs: list[str]
) -> Any:
    """Any module as an ``onnx.ModelProto``, with dynamic dimensions as ``torch.export`` names them."""
    require("onnxscript", extra="onnx", purpose="exporting to ONNX")
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(module, args, dynamic_shapes=dynamic, strict=False)
            onnx_program = torch.onnx.export(
                program,
                args,
                input_names=inputs,
                output_names=outputs,
                opset_version=OPSET,
                dynamo=True,
                custom_translation_table=translations(),
                optimize=False,
                verbose=False,
            )
    except SecondsightError:
        raise
    except Exception as error:
        raise ConfigError(_explained(module, error)) from error
    assert onnx_program is not None
    with _quiet():
        _shorten(onnx_program.model)
    return onnx_program.model_proto


def _shorten(model: Any) -> None:
    """Fold constants and batch norms, drop what nobody reads; exact but for the rounding of folded products."""
    import onnx_ir.passes.common as passes
    from onnxscript import optimizer
    from onnxscript.rewriter import RewritePass
    from onnxscript.rewriter.rules import common

    exact = [
        common.fuse_batchnorm_into_conv_rule,
        common.no_op_cast_rule,
        common.no_op_expand_rule,
        common.no_op_transpose_rule,
        common.cast_cast_rule,
        common.reshape_reshape_rule,
        common.transpose_transpose_rule,
        common.unsqueeze_unsqueeze_rule,
    ]
    passes.InlinePass()(model)
    for node in model.graph:
        if node.op_type == "Split" and len(node.inputs) > 1:
            node.attributes.pop("num_outputs", None)  # the exporter wants it beside sizes, and ONNX has either
    for _ in range(2):
        optimizer.fold_constants_ir(model)
        RewritePass(exact)(model)
        passes.RemoveUnusedNodesPass()(model)
    for step in (
        passes.RemoveUnusedFunctionsPass(),
        passes.RemoveUnusedOpsetsPass(),
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.DeduplicateInitializersPass(),
        passes.CommonSubexpressionEliminationPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    ):
        step(model)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporters warn about packages that are not installed and functions of their own that are old."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch.fx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _explained(module: nn.Module, error: Exception) -> str:
    """Which operator or dimension stood in the way, and what to do about it."""
    name = type(module).__name__
    model = getattr(module, "model", None)
    if isinstance(model, Embedder):
        name = f"{model.backbone.name} with {model.config.pooling}"
    chain, causes = error, []
    while chain is not None:
        causes.append(str(chain))
        chain = chain.__cause__
    text = next((c for c in reversed(causes) if c.strip()), type(error).__name__)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any("No ONNX function found" in c or "DispatchError" in c for c in causes):
        return (
            f"{name} cannot be exported: it uses an operator that ONNX has no word for ({lines[0]}); choose another "
            "pooling or backbone, or run it by torch (--runtime torch)"
        )
    return f"{name} cannot be exported by torch {torch.__version__}: {lines[0]}"
