"""Mistakes of the first five minutes: the answer is one line, and holds what to type instead."""

from __future__ import annotations

import shlex
import sys

import pytest

from secondsight.cli import main as command_line

MISTAKES = {
    "search photos query.jpg": "did you mean 'photos.index'?",
    "search photos.idx query.jpg": "did you mean 'photos.index'?",
    "search query.jpg photos.index": "name the index first",
    "search photos.index quary.jpg": "did you mean 'query.jpg'?",
    "search photos.index 'a red bird'": "cannot search by text",
    "search photos.index": "secondsight search photos.index query.jpg",
    "search": "as in: secondsight search photos.index query.jpg",
    "serch photos.index query.jpg": "'serch'; did you mean 'search'",
    "index ./phots": "did you mean 'photos'?",
    "index photos/only/1.jpg": "give the folder that holds it",
    "explain query.jpg other.jpg": "as in: secondsight explain a.jpg b.jpg --model runs/photos",
    "explain query.jpg query.jpg --model runs/photo": "did you mean 'runs/photos'?",
    "explain query.jpg query.jpg --model a --model b": "--model is given twice",
    "evaluate runs/photo ./photos": "did you mean 'runs/photos'?",
    "compare runs/photos runs/photo": "did you mean 'runs/photos'?",
    "train": "secondsight train --data ./photos",
    "train ./photos": "secondsight train --data ./photos",
    "export runs/photos photos.onnx": "secondsight export runs/photos -o photos.onnx",
    "compress runs/photos --data photos": "--dim 128",
    "search query.jpg": "name the index first",
    "search photos.index photos": "search by a picture in it",
    "search photos.index nothere.jpg": "nothing like it is in",
    "search photos.index query.jpg -k 0": "-k '0': must be a whole number, 1 to 1000000",
    "search photos.index query.jpg -k ten": "-k 'ten': must be a whole number, 1 to 1000000",
    "search photos.index query.jpg -k": "option '-k' requires an argument",
    "index photos --parts 0": "--parts '0': must be a whole number, at least 1",
    "index photos --recall 2": "--recall '2': must be a number, 0.0 to 1.0",
    "index photos --sheet hits.png": "index has no option --sheet; it is an option of search",
    "search photos.index query.jpg --shet hits.png": "did you mean '--sheet'?",
    "index photos.index": "is an index already; to bring it up to date: ",
    "evaluate ./photos runs/photos": "name the model first, as in: secondsight evaluate runs/photos ./photos",
    "embed ./photos runs/photos -o a": "name the model first, as in: secondsight embed runs/photos ./photos",
    "demo --data ./nothing": "nothing like it is in",
    "info photos.idx": "did you mean 'photos.index'?",
    "train --data photos.index": "is an index, and its pictures are elsewhere: give the folder that it was made from",
    "train --data photos": "give the folder that holds one subfolder per class",
}


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder as a newcomer has it; nothing in it is ever opened, because each mistake is seen before."""
    for name in (
        "photos/only/1.jpg",
        "photos/only/2.jpg",
        "query.jpg",
        "photos.index/index.sqlite",
        "runs/photos/config.toml",
        "runs/photos/model.safetensors",
        "hits.png",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("mistake", "cure"), MISTAKES.items(), ids=MISTAKES)
def test_a_first_mistake_is_answered_with_what_to_type(mistake, cure, desk, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["secondsight", *shlex.split(mistake)])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert cure in said
    assert said.count("\n") == 1
