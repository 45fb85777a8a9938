"""What must not be lost, is not: kill −9 at any moment, full disks, read-only folders, readers beside a writer."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from index_worker import DIM, step
from secondsight import index
from secondsight.errors import DataError
from secondsight.index import growth, segments
from secondsight.index.store import Change, Record

KILLS = int(os.environ.get("KILLS", 8))
"""``make kills N=100`` for more of them."""

WORKER = Path(__file__).with_name("index_worker.py")


Items = dict[int, tuple[str, np.ndarray]]
"""What an index holds, or should hold: id → label and vector."""


def held(made) -> Items:
    items = made.items()
    assert [item.id for item in items] == made.ids().tolist(), "the catalogue and the vectors disagree"
    vectors = made.vectors([item.id for item in items])
    return {item.id: (item.label, v) for item, v in zip(items, vectors, strict=True)}


def same(a: Items, b: Items) -> bool:
    return a.keys() == b.keys() and all(a[i][0] == b[i][0] and np.allclose(a[i][1], b[i][1], atol=1e-3) for i in a)


def applied(before: Items, n: int, kind: str, what, ids: list[int]) -> Items:
    """What step ``n`` makes of ``before``."""
    if kind == "add":
        rows = what / np.linalg.norm(what, axis=1, keepdims=True)
        return before | {i: (f"step {n}", row) for i, row in zip(ids, rows, strict=True)}
    return {i: item for i, item in before.items() if i not in what} if kind == "remove" else before


def test_killed_at_any_moment_nothing_acknowledged_is_lost_and_nothing_is_half_there(tmp_path):
    """The index is as after the last acknowledged step, or as after the one that was under way; and it goes on."""
    path, seed, n, killed = tmp_path / "k.index", 7, 0, 0
    index.create(path, dim=DIM).close()
    expected: Items = {}
    moments = np.random.default_rng(seed)
    while killed < KILLS:
        kill = moments.integers(0, 250)
        done = subprocess.run(
            [sys.executable, WORKER, path, str(seed), str(n), "6", str(kill)], capture_output=True, check=False
        )
        assert done.returncode in (0, -9), done.stderr.decode()
        killed += done.returncode == -9
        for line in done.stdout.splitlines():
            said = json.loads(line)
            expected = applied(expected, n, *step(seed, n, sorted(expected)), said["ids"])
            n = said["step"] + 1
        made = index.open(path)
        found = held(made)
        kind, what = step(seed, n, sorted(expected))
        new = sorted(found.keys() - expected.keys())
        if not same(found, expected):
            assert len(new) == (len(what) if kind == "add" else 0), "half of a step"
            expected = applied(expected, n, kind, what, new)
            n += 1
        assert same(found, expected)
        assert made.check().problems == []
        assert (made.search(np.ones(DIM), 5).ids >= 0).sum() == min(5, len(found))
        made.close()
    made = index.open(path)
    with made.store.writer():  # a writer first removes what the dead left
        assert len(list((path / segments.FOLDER).iterdir())) == made.info()["segments"]


LIMITED = """
import resource, sys
import numpy as np
from secondsight import index
from secondsight.errors import DataError
made = index.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    made.add_vectors(np.ones((int(sys.argv[3]), 8)), columns={"note": ["x" * int(sys.argv[4])] * int(sys.argv[3])})
except DataError as error:
    print(error)
    sys.exit(7)
"""


@pytest.mark.parametrize(("rows", "note"), [(20_000, 1), (200, 5_000)], ids=["vectors", "catalogue"])
def test_a_disk_that_is_full_is_said_and_the_old_index_is_intact(tmp_path, rows, note):
    made = index.create(tmp_path / "f.index", dim=8)
    made.add_vectors(np.eye(8), labels=list("abcdefgh"))
    before = held(made)
    made.close()
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, made.path, str(200_000), str(rows), str(note)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert "the index is as it was" in done.stdout
    again = index.open(made.path)
    assert same(held(again), before)
    assert again.check().problems == []
    again.add_vectors(np.ones((3, 8)))
    assert len(again) == 11


AS_NOBODY = """
import os, sys
import numpy as np
from secondsight.errors import DataError
from secondsight.index import creation as index, scan
os.getuid() or os.setuid(65534)  # root may write anywhere
made = index.open(sys.argv[1])
print(made.search(np.arange(8.0, 0, -1), 2).ids[0].tolist(), made.item(0).label)
try:
    made.add_vectors(np.ones((1, 8)))
except DataError as error:
    print(error)
    sys.exit(7)
"""


def test_a_read_only_index_can_be_searched_and_says_that_it_cannot_be_changed():
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        made = index.create(Path(place) / "r.index", dim=8)
        made.add_vectors(np.eye(8), labels=list("abcdefgh"))
        made.close()
        for folder in (made.path, made.path / segments.FOLDER):
            folder.chmod(0o555)
        done = subprocess.run([sys.executable, "-c", AS_NOBODY, made.path], capture_output=True, text=True, check=False)
        for folder in (made.path, made.path / segments.FOLDER):
            folder.chmod(0o755)
        assert done.returncode == 7, done.stderr
        assert done.stdout.startswith("[0, 1] a\n")
        assert "cannot be changed" in done.stdout


def test_a_reader_beside_a_writer_sees_one_generation_or_the_next(tmp_path):
    """Every step of the writer adds, or removes, all items of a label at once."""
    code = (
        "import sys, numpy as np; from secondsight import index; made = index.open(sys.argv[1])\n"
        "for n in range(40):\n"
        "    ids = made.add_vectors(np.random.default_rng(n).standard_normal((25, 8)), labels=[f's{n}'] * 25)\n"
        "    if n % 3 == 2: made.remove(ids)\n"
        "    if n % 10 == 9: made.compact()\n"
    )
    made = index.create(tmp_path / "r.index", dim=8)
    writer = subprocess.Popen([sys.executable, "-c", code, made.path])
    seen = set()
    while writer.poll() is None:
        with made.store.reading() as (database, snapshot):
            count = database.execute("SELECT COUNT(*) FROM items").fetchone()[0]
            assert count == len(snapshot) == int(snapshot.alive.sum())
            assert count % 25 == 0
        hits = made.search(np.ones(8), 1000)
        found = hits.ids[hits.ids >= 0]
        assert len(found) % 25 == 0
        assert np.isfinite(made.searcher.neighbours(np.ones((1, 8), np.float32), 1000)[0]).sum() % 25 == 0
        assert all(label is not None for label in hits.labels[hits.ids >= 0])
        seen.add(len(found))
    assert writer.returncode == 0
    assert len(seen) > 3, "the reader did not see the index grow"
    assert len(made) == 40 * 25 - 13 * 25


def test_two_writers_take_turns_and_the_third_waits_no_longer_than_it_should(tmp_path):
    made = index.create(tmp_path / "w.index", dim=8)
    other = index.open(made.path)
    other.store._lock.timeout = 0.1
    with made.store.writer(), pytest.raises(DataError, match="another process is changing"):
        other.add_vectors(np.ones((1, 8)))
    other.add_vectors(np.ones((1, 8)))
    assert len(made) == 1


def damaged(made) -> Path:
    victim = sorted((made.path / segments.FOLDER).iterdir())[0]
    content = bytearray(victim.read_bytes())
    content[-3] ^= 0x10
    victim.write_bytes(content)
    return victim


def test_check_finds_a_single_flipped_bit_and_repair_keeps_the_rest(tmp_path):
    made = index.create(tmp_path / "c.index", dim=8)
    made.add_vectors(np.eye(8)[:3])
    kept = made.add_vectors(np.eye(8)[3:])
    assert made.check().problems == []
    victim = damaged(made)
    found = index.open(made.path).check()
    assert str(victim) in found.problems[0]
    assert not found.sound
    mended = index.open(made.path).check(repair=True)
    assert mended.sound
    assert "update" in mended.mended[0]
    again = index.open(made.path)
    assert again.check().problems == []
    assert again.ids().tolist() == kept.tolist()


def test_repair_gives_up_the_block_that_is_damaged_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "BLOCK", 10)
    made = index.create(tmp_path / "b.index", dim=8)
    vectors = np.random.default_rng(0).standard_normal((95, 8))
    made.add_vectors(vectors)
    made.remove([3, 41, 44])
    file = next((made.path / segments.FOLDER).iterdir())
    content = bytearray(file.read_bytes())
    content[-(95 - 47) * 16] ^= 0x10  # in the vector of item 47
    file.write_bytes(content)
    again = index.open(made.path)
    with pytest.raises(DataError, match="secondsight check"):
        again.search(vectors[0])
    assert "10 of its 95 vectors" in again.check().problems[0]
    assert again.check(repair=True).sound
    again = index.open(made.path)
    assert again.check().problems == []
    assert again.ids().tolist() == [i for i in range(95) if i not in (3, *range(40, 50))]
    assert len(again) == 84
    assert again.search(vectors[7], 1).ids[0, 0] == 7
    assert again.check().vectors == 85


def test_check_reads_files_that_are_too_large_to_be_read_whenever_they_are_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "CHECKED", 100)
    made = index.create(tmp_path / "l.index", dim=8)
    made.add_vectors(np.eye(8))
    damaged(made)
    again = index.open(made.path)
    assert len(again) == 8
    assert "8 of its 8 vectors" in again.check().problems[0]


@pytest.mark.parametrize("kind", ["", "xxh3"])
def test_segments_of_older_indexes_are_one_block(tmp_path, kind):
    made = index.create(tmp_path / "o.index", dim=8)
    made.add_vectors(np.eye(8))
    file = next((made.path / segments.FOLDER).iterdir())
    old = f"{kind}{':' if kind else ''}{segments.HASHES[kind](file.read_bytes()).hexdigest()}"
    with made.store.catalogue.writing() as database:
        database.execute("UPDATE segments SET checksum = ?", (old,))
    assert index.open(made.path).check().problems == []
    damaged(made)
    assert "8 of its 8 vectors" in index.open(made.path).check().problems[0]


@pytest.mark.parametrize("change", ["label = 'egret'", "path = 'b/0.png'", "width = 49", "size = NULL", "c0 = 4"])
def test_a_row_of_the_catalogue_that_changed_by_itself_is_an_error_and_repair_leaves_it_out(tmp_path, change):
    made = index.create(tmp_path / "c.index", dim=8)
    records = [Record(None, f"{n}.png", "heron", 9, 10, b"h", 48, 40, {"wings": 2}) for n in range(3)]
    made.store.commit(Change(records, np.eye(8)[:3]))
    made.close()
    with sqlite3.connect(made.path / "index.sqlite") as database:
        database.execute(f"UPDATE items SET {change} WHERE id = 1")
    again = index.open(made.path)
    assert again.item(0).label == "heron"
    with pytest.raises(DataError, match=r"item 1 .* damaged.*secondsight check"):
        again.item(1)
    with pytest.raises(DataError, match=r"item 1 .* damaged.*secondsight check"):
        again.search(np.eye(8)[1], k=3)
    assert "1 items are damaged in the catalogue (the first: 1)" in again.check().problems
    assert again.check(repair=True).sound
    assert index.open(made.path).ids().tolist() == [0, 2]
    assert index.open(made.path).check().problems == []


@pytest.mark.parametrize("change", ["facts SET value = '9' WHERE key = 'dim'", "roots SET spec = '/elsewhere'"])
def test_a_fact_or_a_folder_that_changed_by_itself_is_an_error(tmp_path, change):
    made = index.create(tmp_path / "c.index", dim=8)
    growth.add_root(made.store, str(tmp_path), "folder", True)
    made.add_vectors(np.eye(8))
    made.close()
    with sqlite3.connect(made.path / "index.sqlite") as database:
        database.execute(f"UPDATE {change}")
    with pytest.raises(DataError, match=r"damaged.*secondsight check"):
        index.open(made.path).search(np.eye(8)[1])


def test_a_lost_segment_is_an_error_that_names_the_cure(tmp_path):
    made = index.create(tmp_path / "c.index", dim=8)
    made.add_vectors(np.eye(8))
    next((made.path / segments.FOLDER).iterdir()).unlink()
    with pytest.raises(DataError, match="secondsight check"):
        index.open(made.path).search(np.ones(8))
    index.open(made.path).check(repair=True)
    assert len(index.open(made.path)) == 0


def test_many_small_additions_leave_few_segments(tmp_path):
    made = index.create(tmp_path / "m.index", dim=8)
    rng = np.random.default_rng(0)
    for n in rng.integers(1, 60, 120):
        made.add_vectors(rng.standard_normal((n, 8)))
    assert made.info()["segments"] <= 8 + 14
    assert made.check().problems == []
    made.remove(made.ids()[::2])
    made.compact()
    assert made.info()["segments"] == 1
    assert made.info()["removed, not yet compacted"] == 0
    assert held(made)
