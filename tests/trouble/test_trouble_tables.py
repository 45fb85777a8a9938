"""Tables and lists with contents that no one would write on purpose."""

from __future__ import annotations

import numpy as np
import pytest

import data_layouts as layouts
from secondsight import data
from secondsight.errors import DataError


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"path,label\na\0b/c.png,1\n", "NUL or is too long"),
        (b"path,label\n" + b"a" * 5000 + b",1\n", "NUL or is too long"),
        (b"path,label,label\na.png,1,2\n", "two columns have the same name"),
        (b"path,label, Label\na.png,1,2\n", "two columns have the same name"),
        (b"path,label,split\na.png,1," + b"x" * 200 + b"\n", "a split of more than 100 letters"),
        (b"path,label\n\xff\xfe.png,1\n", "not UTF-8"),
        (b"path,label\n" + b'"' * 3, "not a CSV table"),
        (b"", "the table is empty"),
    ],
)
def test_a_table_that_cannot_be_right_is_refused(tmp_path, content, cause):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=cause):
        data.open(tmp_path / "t.csv")


def test_a_label_of_five_thousand_digits_is_a_name(tmp_path):
    layouts.picture(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text(f"path,label\na.png,{'9' * 5000}\na.png,1\n")
    assert data.open(tmp_path / "t.csv").classes == ("1", "9" * 5000)


def test_one_long_group_does_not_widen_all_others(tmp_path):
    layouts.picture(tmp_path / "a.png")
    rows = "".join(f"a.png,x,{'g' * 100_000 if i == 0 else i % 3}\n" for i in range(300))
    (tmp_path / "t.csv").write_text(f"path,label,group\n{rows}")
    groups = data.open(tmp_path / "t.csv").groups
    assert len(np.unique(groups)) == 4


def test_parquet_with_bytes_that_are_no_text(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    broken = pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, pyarrow.py_buffer(np.array([0, 2], np.int32)), pyarrow.py_buffer(b"\xff\xfe")]
    )
    parquet.write_table(pyarrow.table({"path": broken, "label": [1]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="not a Parquet table that can be read"):
        data.open(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("line", "cause"),
    [("² x.jpg", "not a number and a value"), ("9" * 5000 + " x.jpg", "not a number"), ("1", "not a number")],
)
def test_numbers_in_cubs_lists(tmp_path, line, cause):
    (tmp_path / "images.txt").write_text(line + "\n")
    (tmp_path / "image_class_labels.txt").write_text("1 1\n")
    with pytest.raises(DataError, match=cause):
        data.open(f"cub200:{tmp_path}")


def test_lists_that_are_no_text(tmp_path):
    (tmp_path / "Ebay_train.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"Ebay_train\.txt: not a text in UTF-8"):
        data.open(f"sop:{tmp_path}")


def test_a_path_with_a_nul_or_of_four_thousand_letters(tmp_path):
    with pytest.raises(DataError, match="not a path"):
        data.open("a\0b")
    with pytest.raises(DataError, match="File name too long"):
        data.open("a" * 4000)
