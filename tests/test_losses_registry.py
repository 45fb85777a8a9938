"""Names, options, the contract's attributes, and the list on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from secondsight.cli.main import app
from secondsight.errors import ConfigError, UnknownName
from secondsight.losses import LOSSES, Loss, build, option_defaults

NAMES = list(LOSSES)


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_keeps_the_contract(name):
    loss = build(name, dim=12, classes=4)
    assert isinstance(loss, Loss)
    assert loss.name == name
    assert loss.expects.images_per_class in (1, 2)
    assert loss.expects.words
    assert loss.paper
    assert loss.provider in ("secondsight", "pytorch-metric-learning")
    z = torch.randn(3, 12)
    assert loss.transform_at_test(z).shape == z.shape
    loss.on_epoch([(torch.randn(8, 12), torch.arange(8) // 2)])


@pytest.mark.parametrize("name", NAMES)
def test_defaults_can_be_written_into_a_recipe(name):
    written = {key: value for key, value in option_defaults(name).items() if value is not None}
    read = json.loads(json.dumps(written))
    loss = build(name, dim=512, classes=4, **read)
    assert loss.state_dict().keys() == build(name, dim=512, classes=4).state_dict().keys()


@pytest.mark.parametrize("name", ["proxy-nca", "proxy-anchor"])
def test_proxies_are_one_parameter_with_one_vector_a_class(name):
    loss = build(name, dim=12, classes=7)
    assert [p.shape for p in loss.parameters()] == [(7, 12)]


def test_unknown_names_and_options_suggest_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'triplet'"):
        build("tripelt", dim=8, classes=2)
    with pytest.raises(ConfigError, match="loss 'triplet' has no option 'margins'; did you mean 'margin'"):
        build("triplet", dim=8, classes=2, margins=0.1)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("triplet", {"margin": "wide"}, "cannot be 'wide': Input should be a valid number"),
        ("triplet", {"margin": True}, "cannot be True"),
        ("triplet", {"margin": -0.1}, "margin must be above 0"),
        ("histogram", {"bins": 1.5}, "cannot be 1.5"),
        ("semihard", {"negatives": "easy"}, "'hardest' or 'all'"),
        ("npair", {"pairs": "two"}, "'all' or 'one'"),
        ("bier", {"boosting": "ada"}, "'shrinkage' or 'paper'"),
        ("bier", {"sizes": [2, 2]}, "add up to the embedding's 8 dimensions"),
        ("bier", {"sizes": [9, -1]}, "must be positive"),
        ("hdc", {"fractions": [1.0, 0.0]}, r"numbers in \(0, 1\]"),
        ("hdc", {"sizes": [4, 4]}, "2 sizes for 3 fractions"),
    ],
)
def test_senseless_options_are_refused_with_a_reason(name, options, said):
    with pytest.raises(ConfigError, match=said):
        build(name, dim=8, classes=4, **options)


def test_a_whole_number_and_a_list_do_for_a_float_and_a_tuple():
    loss = build("hdc", dim=8, classes=4, fractions=[1, 0.5], sizes=[2, 6], margin=1)
    assert [part.size for part in loss.parts] == [2, 6]


@pytest.mark.parametrize(("dim", "sizes"), [(512, (96, 160, 256)), (64, (12, 20, 32)), (3, (1, 1, 1))])
def test_bier_cuts_the_embedding_in_the_papers_proportions(dim, sizes):
    assert tuple(part.size for part in build("bier", dim=dim, classes=4).parts) == sizes


@pytest.mark.parametrize("name", ["bier", "hdc"])
def test_too_few_dimensions_for_three_parts_are_an_error(name):
    with pytest.raises(ConfigError, match="2 dimensions cannot be cut into 3 parts"):
        build(name, dim=2, classes=4)


def test_bier_scales_its_learners_by_their_size_and_hdc_joins_unit_vectors():
    z = torch.randn(5, 16)
    for name, scales in (("bier", (3 / 16, 5 / 16, 8 / 16)), ("hdc", (1.0, 1.0, 1.0))):
        loss = build(name, dim=16, classes=4)
        parts = loss.transform_at_test(z).split([part.size for part in loss.parts], dim=1)
        for part, scale in zip(parts, scales, strict=True):
            torch.testing.assert_close(part.norm(dim=1), torch.full((5,), scale))


def test_the_command_lists_every_loss():
    done = CliRunner().invoke(app, ["losses"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    for name in NAMES:
        assert name in done.output
    assert "margin=0.1" in done.output


def test_the_page_has_a_row_and_a_section_for_every_loss():
    page = (Path(__file__).parents[1] / "docs/losses.md").read_text("utf-8")
    for name in NAMES:
        assert f"| [`{name}`](#{name}) |" in page, f"docs/losses.md has no row for {name}"
        assert re.search(rf"^#+ .*`?{name}`?", page, flags=re.M), f"docs/losses.md has no section on {name}"


def test_the_command_prints_json_for_machines():
    rows = json.loads(CliRunner().invoke(app, ["losses", "--json"]).output)
    assert [row["name"] for row in rows] == NAMES
    assert rows[0]["options"] == {"margin": 0.1}
    assert rows[0]["expects"]["images_per_class"] == 2
