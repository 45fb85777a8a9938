"""A vision transformer from a directory, as a hub holds it, trains like any network: frozen, stored, second order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers as hf

import secondsight
from secondsight.reproduce import tables
from secondsight.train import recipe_file, train
from secondsight.train.forecast import dry_run
from train_tiny import recipe, write_digits

TABLE = Path(__file__).parents[1] / "examples" / "tokens.toml"
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 7}
PIXELS = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "size": {"height": 28, "width": 28}}


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("vit")
    config = hf.Dinov2WithRegistersConfig(**SIZES, num_register_tokens=4)
    hf.Dinov2WithRegistersModel(config).save_pretrained(directory)
    (directory / "preprocessor_config.json").write_text(json.dumps(PIXELS))
    return directory


@pytest.mark.parametrize("token", ["out", "beside"])
def test_its_tokens_are_stored_once_and_a_head_learns_on_them(vit, tmp_path, token):
    digits = write_digits(tmp_path / "digits", classes=8, images=8)
    wanted = recipe(
        digits,
        f"model.backbone=hf:{vit}",
        "model.weights=default",
        "model.freeze=all",
        f"model.backbone_options={{class_token = '{token}'}}",
        "model.norm_exponent=0.0",
        "model.pooling_options={start = 'pairs', width = 40, whiten = 0.25}",
        "data.transform=resize-crop",
        f"data.cache_dir={tmp_path / 'cache'}",
        "train.epochs=1",
    )
    assert train(wanted, tmp_path / "run", quiet=True).complete
    model = secondsight.load(tmp_path / "run" / "best")
    assert model.backbone.out_dim == (64 if token == "beside" else 32)
    assert model.backbone.grid(28, 42) == (4, 6)
    other_size = torch.randint(0, 256, (2, 3, 28, 42), dtype=torch.uint8)
    with torch.no_grad():
        assert torch.isfinite(model(other_size)).all()
    assert list((tmp_path / "cache").glob("*/rows.f16"))


@pytest.mark.parametrize("row", tables.read(TABLE).rows, ids=lambda row: row.name)
def test_the_table_for_those_who_have_a_hub_runs_with_a_small_network_in_its_place(vit, tmp_path, row):
    digits = write_digits(tmp_path / "digits", classes=8, images=8)
    found = dry_run(
        recipe_file.make(
            row.recipe(fold=0, seed=0).model_dump(mode="python"),
            [
                f"data.path={digits}",
                f"model.backbone=hf:{vit}",
                "model.dim=24",
                "model.reduce=16",
                "train.classes_per_batch=4",
                *(
                    ["model.pooling_options.width=40"]
                    if "width" in row.recipe(fold=0, seed=0).model.pooling_options
                    else []
                ),
            ],
        )
    )
    assert found.classes == (4, 4)
    assert all(loss == loss for loss in found.losses)
