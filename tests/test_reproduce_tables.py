"""A table is read strictly, its axes are multiplied, and the shipped ones are what they say."""

from __future__ import annotations

import pytest
import torch

from secondsight import backbones, losses, pooling, shipped
from secondsight.errors import ConfigError, UnknownName
from secondsight.losses import LOSSES
from secondsight.reproduce import tables
from secondsight.reproduce.plan import plan
from secondsight.train import recipe_file

SHIPPED = sorted(shipped.files(shipped.TABLES))


def written(tmp_path, text: str):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


PRODUCT = """# Losses by pooling
#
# Two words
# on it.
recipe = "quick-frozen"
folds = [0, 1]
seeds = [0, 1]
baseline = "plain"

[set]
train.epochs = 2

[[rows]]
name = "plain"
set = { model.pooling = "average", model.pooling_options = {}, train.epochs = 7 }
seeds = [5]
note = "by hand"

[[axes]]
name = "loss"
key = "loss.name"
values = ["triplet", { name = "wide", set = { loss = { name = "triplet", options = { margin = 0.5 } } } }]

[[axes]]
name = "dim"
key = "model.dim"
values = [64, 128]
"""


def test_rows_are_those_written_out_and_every_combination_of_the_axes(tmp_path):
    table = tables.read(written(tmp_path, PRODUCT))
    assert (table.name, table.title, table.text) == ("mine", "Losses by pooling", "Two words\non it.")
    assert table.columns == ("loss", "dim")
    assert [row.name for row in table.rows] == ["plain", "triplet 64", "triplet 128", "wide 64", "wide 128"]
    plain, *_, wide = table.rows
    assert (plain.seeds, plain.folds, plain.note) == ((5,), (0, 1), "by hand")
    recipe = wide.recipe(fold=1, seed=3)
    assert (recipe.loss.name, recipe.loss.options, recipe.model.dim) == ("triplet", {"margin": 0.5}, 128)
    assert (recipe.validation.fold, recipe.train.seed, recipe.train.epochs) == (1, 3, 2)
    shipped_one = recipe_file.read(shipped.find("quick-frozen"))
    assert recipe.model.pooling_options == shipped_one.model.pooling_options != {}, "the shipped recipe's own"
    assert plain.recipe(fold=0, seed=0).model.pooling_options == {}, "replaced as a whole"
    assert plain.recipe(fold=0, seed=0).train.epochs == 7, "a row has the last word"


def test_the_first_seed_of_every_row_and_fold_comes_first(tmp_path):
    runs = plan(tables.read(written(tmp_path, PRODUCT)))
    assert [(run.seed, run.fold) for run in runs] == sorted((run.seed, run.fold) for run in runs)
    assert len(runs) == 4 * 4 + 2
    assert {run.row.name for run in runs[:4]} == {"triplet 64", "triplet 128", "wide 64", "wide 128"}
    some = plan(tables.read(written(tmp_path, PRODUCT)), folds=[0], seeds=[9], rows="wide*")
    assert [str(run) for run in some] == ["wide 64, fold 0, seed 9", "wide 128, fold 0, seed 9"]
    with pytest.raises(ConfigError, match=r"no row of mine is called 'jcf\*'; rows: plain, triplet 64"):
        plan(tables.read(written(tmp_path, PRODUCT)), rows="jcf*")


def test_a_row_is_held_against_one_for_all_or_against_its_like(tmp_path):
    table = tables.read(written(tmp_path, PRODUCT))
    assert [(b := table.baseline_of(row)) and b.name for row in table.rows] == [None, *["plain"] * 4]
    table = tables.read(written(tmp_path, PRODUCT.replace('"plain"', '{ dim = "64" }', 1)))
    assert [(b := table.baseline_of(row)) and b.name for row in table.rows] == [
        *(None, None, "triplet 64", None, "wide 64")
    ]
    assert table.baseline_words == "64"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('baseline = "plain"', 'baseline = { dims = "64" }', "unknown axis of the baseline 'dims'; did you mean 'dim'"),
        ('baseline = "plain"', 'baseline = { dim = "65" }', "unknown dim of the baseline '65'"),
        ("folds =", "fold =", "unknown key 'fold'; did you mean 'folds'"),
        ('note = "by hand"', 'notes = "by hand"', r"unknown key 'rows.0.notes'; did you mean 'note'"),
        ('key = "loss.name"', 'keys = "loss.name"', "need a key such as 'loss.name'"),
        ("train.epochs = 2", "train.epoch = 2", r"row 'plain': unknown key 'train.epoch'; did you mean 'epochs'"),
        ('"triplet", {', '"tripplet", {', r"row 'tripplet 64': loss.name: unknown loss 'tripplet'; did you mean"),
        ("folds = [0, 1]", "folds = []", "folds: List should have at least 1 item"),
        ("seeds = [5]", "seeds = [-5]", "rows.0.seeds.0"),
        ('baseline = "plain"', 'baseline = "plane"', "unknown baseline 'plane'; did you mean 'plain'"),
        ("values = [64, 128]", "values = [64, 64]", "two rows are called 'triplet-64'"),
        ('recipe = "quick-frozen"', "", "recipe: Field required"),
        ("[set]", "[set", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_what_was_meant(tmp_path, before, after, words):
    assert before in PRODUCT
    with pytest.raises(ConfigError, match=words):
        tables.read(written(tmp_path, PRODUCT.replace(before, after, 1)))


def test_a_table_without_rows_and_an_unknown_name_are_errors(tmp_path):
    with pytest.raises(ConfigError, match="has no rows"):
        tables.read(written(tmp_path, 'recipe = "quick-frozen"'))
    with pytest.raises(UnknownName, match="did you mean 'ablation'"):
        shipped.find("ablations", shipped.TABLES)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_row_of_a_shipped_table_can_be_built(name):
    table = tables.read(shipped.find(name, shipped.TABLES))
    assert table.title
    for row in table.rows:
        m = (recipe := row.recipe(fold=0, seed=0)).model
        with torch.device("meta"):
            network = backbones.build(m.backbone, weights=None, freeze=m.freeze, **m.backbone_options)
            whole = pooling.POOLINGS[pooling.family(m.pooling)].skips_reduction or not m.reduce
            channels = network.out_dim if whole else m.reduce
            assert pooling.build(m.pooling, in_dim=channels, out_dim=m.dim, **m.pooling_options).out_dim == m.dim
        losses.build(recipe.loss.name, dim=m.dim, classes=4, **recipe.loss.options)
        assert recipe.validation.share == 0.5


def test_the_ablation_has_the_papers_twelve_columns_each_literal_and_ours():
    table = tables.read(shipped.find("ablation", shipped.TABLES))
    layers = list(dict.fromkeys(row.cells[0] for row in table.rows))
    assert layers == [
        *("average", "bp", "bp-4", "jcf", "jcf-4", "jcf-16-4", "jcf-16-8", "jcf-16-16"),
        *("jcf-32-4", "jcf-32-8", "jcf-32-16", "jcf-32"),
    ]
    for row in table.rows[1:]:
        model = row.recipe(fold=0, seed=0).model
        assert (model.backbone, model.freeze, model.pooling) == ("vgg16", "conv4", row.cells[0])
        if row.cells[1] == "literal":
            assert (model.norm_exponent, model.pooling_options) == (1.0, {"scale": 1.0, "learn_scale": False})
        else:
            assert model.norm_exponent == 0.0
            ours = {"start": "square", "power": 0.5, "whiten": 0.25}
            assert model.pooling_options == ({} if row.name.startswith("bp") else ours)
            assert model.reduce == 256, "the paper's"


def test_the_method_table_has_every_loss_with_both_poolings_under_one_budget():
    table = tables.read(shipped.find("methods", shipped.TABLES))
    assert {row.cells for row in table.rows} == {(loss, p) for loss in LOSSES for p in ("average", "jcf-32-8")}
    recipes = {row.cells: row.recipe(fold=0, seed=0) for row in table.rows}
    assert (
        len({r.train.model_dump_json() + r.optimizer.model_dump_json(exclude={"head_lr"}) for r in recipes.values()})
        == 1
    )
    assert len({(pooling, r.optimizer.head_lr) for (_, pooling), r in recipes.items()}) == 2


@pytest.mark.parametrize("name", ["headline", "headline-lite0", "headline-frozen"])
def test_headline_rows_have_two_folds_and_three_seeds(name):
    full = [
        row.name
        for row in tables.read(shipped.find(name, shipped.TABLES)).rows
        if (row.folds, row.seeds) == ((0, 1), (0, 1, 2))
    ]
    assert {"average", "jcf-32", "jcf-32-8"} <= {row.split(",")[0] for row in full}
