"""Commands that cannot work, over all verbs: one line that names the value and the cure, and never a traceback.

The commands are in bad_commands.txt. Each ends with 2 and exactly one line that begins with "error:", in which
everything that the table puts into «» is named and which says what to do; or with 1, where finding faults is the work.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from attempts import run_command

import train_tiny
from index_pictures import folder, picture

TABLE = Path(__file__).with_name("bad_commands.txt")
COMMANDS = [line for line in TABLE.read_text("utf-8").splitlines() if line and not line.startswith("#")]

# What to do stands after a semicolon, or is what is valid.
CURE = (
    "; [a-z`-]|Valid: |did you mean|such as|must|should|between|expected|give |choose |write |format we read|looked for"
)


class World:
    """Places by name; ``world.root / "none"`` is never made."""

    def __init__(self, root: Path) -> None:
        self.root, self.taken = root, socket.create_server(("127.0.0.1", 0))
        self.places = {"taken": str(self.taken.getsockname()[1]), "long": "a" * 4000}
        _pictures(root)
        _files(root)
        _models(root)
        _index(root)

    def fill(self, text: str, number: int) -> str:
        found = {
            "out": str(self.root / "outs" / str(number)),
            "photo": str(self.root / "photos/a/0.png"),
            **self.places,
        }
        return re.sub(r"{(.+?)}", lambda name: found.get(name[1], str(self.root / name[1])), text)


def _pictures(root: Path) -> None:
    folder(root / "photos", classes="abcd", each=4)
    folder(root / "mixed", classes="ab", each=3)
    (root / "mixed/a/bad.png").write_bytes(b"\x89PNG nothing")
    for name in ("a/0.png", "a/1.png", "b/0.png", "b/1.png"):
        (root / "broken" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "broken" / name).write_bytes(b"\x89PNG nothing")
    for i in range(3):
        picture(root / "flat" / f"{i}.png", i)
        picture(root / "single" / str(i) / "x.png", i)
    (root / "empty").mkdir()
    (root / "outs").mkdir()


def _files(root: Path) -> None:
    vectors = np.eye(6, 4, dtype=np.float32)
    arrays = {"v": vectors, "cube": np.zeros((2, 2, 2)), "words": np.array([["a"]]), "scalar": np.int64(1)}
    arrays |= {"nan": np.full((6, 4), np.nan), "rows0": np.zeros((0, 4), np.float32)}
    for name, array in arrays.items():
        np.save(root / f"{name}.npy", array)
    np.save(root / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    content = {
        "zero.npy": b"",
        "cut.npy": (root / "v.npy").read_bytes()[:140],
        "labels.txt": b"a\na\nb\nb\nc\nc\n",
        "short.txt": b"a\na\n",
        "alone.txt": b"a\nb\nc\nd\ne\nf\n",
        "file": b"a file\n",
        "empty.csv": b"",
        "nul.csv": b"path,label\na\0b.png,1\n",
        "columns.csv": b"name,kind\na.png,1\n",
        "gone.csv": b"path,label\nphotos/a/0.png,a\nphotos/a/99.png,a\n",
        "latin.csv": b"path,label\ncaf\xe9.png,1\n",
        "text.parquet": b"PAR1 no",
        "text.zip": b"no archive",
        "syntax.toml": b"[model\n",
        "unknown.toml": b"[train]\nepoch = 3\n",
        "type.toml": b"[train]\nepochs = 'many'\n",
        "binary.toml": b"\xff\xfe\x00",
    }
    for name, text in content.items():
        (root / name).write_bytes(text)
    with tarfile.open(root / "whole.tgz", "w:gz") as packed:
        packed.add(root / "photos", "photos")
    (root / "cut.tgz").write_bytes((root / "whole.tgz").read_bytes()[:100])
    with zipfile.ZipFile(root / "good.zip", "w") as packed:
        packed.write(root / "photos/a/0.png", "0.png")


def _models(root: Path) -> None:
    from secondsight import Embedder, data
    from secondsight.embed.directory import embed_to, finish
    from secondsight.train import train

    made = {"backbone": "tiny", "weights": "random", "dim": 16, "reduce": 16, "size": 16}
    for name, pooling in (("model", "jcf-4"), ("othermodel", "jcf-4-2"), ("average", "average")):
        Embedder.build(**made, pooling=pooling).eval().save(root / name)
    changes = {
        "cutmodel": ("model.safetensors", lambda content: content[:300]),
        "badconfig": ("config.toml", lambda content: content.replace(b"dim = 16", b"dim = -3")),
        "futuremodel": ("config.toml", lambda content: content.replace(b"format = 2", b"format = 99")),
    }
    for name, (file, change) in changes.items():
        shutil.copytree(root / "model", root / name)
        content = (root / name / file).read_bytes()
        (root / name / file).write_bytes(change(content))
        assert change(content) != content
    from secondsight import load

    images = data.open(root / "photos")
    embed_to(root / "vectors", load(root / "model"), images, workers=0)
    finish(root / "vectors", images, batch_size=64)
    train(train_tiny.recipe(root / "photos", "train.epochs=1", "train.classes_per_batch=2"), root / "run", quiet=True)


def _index(root: Path) -> None:
    from secondsight import index, load

    made = index.create(root / "index", load(root / "model"))
    made.add(str(root / "photos"))
    made.close()
    shutil.copytree(root / "index", root / "brokenindex")
    (root / "brokenindex/index.sqlite").write_bytes(b"SQLite format 3\0 and then nothing")
    shutil.copytree(root / "index", root / "damagedindex")
    segment = next((root / "damagedindex/segments").iterdir())
    content = bytearray(segment.read_bytes())
    content[-3] ^= 16
    segment.write_bytes(content)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("world")
    before = Path.cwd()
    os.chdir(place)
    yield World(place)
    os.chdir(before)


@pytest.mark.parametrize("number", range(len(COMMANDS)), ids=COMMANDS)
def test_a_bad_command_is_answered_with_one_line(world, number, unchecked):
    command = world.fill(COMMANDS[number], number)
    named = re.findall("«(.*?)»", command)
    out, err, code = run_command(shlex.split(re.sub("[«»]", "", command)))
    assert "Traceback" not in err + out
    if code == 1:  # the verb did its work, which was to find what is wrong
        assert "✗" in out
        return
    assert code == 2, (code, out, err)
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, err + out
    assert err.rstrip().endswith(errors[0]), "there is more after the error"
    assert "fault of secondsight" not in err
    assert [value for value in named if value not in errors[0].replace("'", "")] == []
    assert re.search(CURE, errors[0].replace(str(world.root), "")), f"no cure: {errors[0]}"


def test_the_table_has_every_verb_and_enough_of_them():
    from secondsight.cli.main import app

    assert len(COMMANDS) >= 237
    verbs = {verb.name for verb in (*app.registered_commands, *app.registered_groups)}
    assert verbs <= {command.split()[0] for command in COMMANDS}
