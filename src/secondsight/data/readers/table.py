"""A table of images: CSV, TSV or Parquet with the columns ``path`` and ``label``, or also ``split``, ``group``."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secondsight.data.imageset import ImageSet
from secondsight.data.readers.folder import PARTS
from secondsight.errors import DataError, nearest
from secondsight.extras import require

COLUMNS = ("path", "label", "split", "group")
LONGEST = 4096  # letters of a path: no system opens more
Columns = dict[str, list[Any]]


def find(root: Path) -> Path | None:
    """A file that is a table by its suffix."""
    return root if root.is_file() and root.suffix.lower() in READERS else None


def read(file: Path, *, columns: Mapping[str, str] | None = None, root: Path | None = None) -> ImageSet:
    """One row per image. Relative paths start at ``root``, by default the folder of the table.

    ``columns`` gives other names to the four that are understood: ``{"label": "species"}``.
    """
    if file.suffix.lower() not in READERS:
        raise DataError(f"{file}: the name of a table ends in {', '.join(sorted(READERS))}; this does not")
    table = READERS[file.suffix.lower()](file)
    names = _resolve(file, list(table), columns or {})
    # A table made on Windows has backslashes; no dataset we know has them in file names.
    path = [p.replace("\\", "/") for p in _texts(file, names["path"], table[names["path"]], "have no path")]
    if not path:
        raise DataError(f"{file}: the table has no rows below its header")
    if odd := [row for row, p in enumerate(path, 1) if "\0" in p or len(p) > LONGEST]:
        raise DataError(
            f"{file}: the path in data row {odd[0]} cannot be one: it holds a NUL or is too long; correct it"
        )
    folder = Path(root) if root is not None else file.parent
    groups = _codes(table[names["group"]]) if "group" in names else None
    parts = _parts(file, names["split"], table[names["split"]]) if "split" in names else None
    if "label" not in names:
        return ImageSet(file.stem, folder, tuple(path), groups=groups, parts=None if parts is None else np.array(parts))
    labels = _texts(file, names["label"], table[names["label"]], "have no label")
    return ImageSet.labelled(file.stem, folder, path, labels, order=natural(labels), groups=groups, parts=parts)


def natural(names: Sequence[str]) -> list[str]:
    """The different names in order; by value when every one of them is a whole number, so that 9 comes before 10."""
    different = set(names)
    if all(re.fullmatch(r"-?[0-9]{1,18}", name) for name in different):
        return sorted(different, key=lambda name: (int(name), name))
    return sorted(different)


def _resolve(file: Path, header: list[str], renamed: Mapping[str, str]) -> dict[str, str]:
    """Which column of the file plays which role; an optional one that is not there plays none."""
    plain = {name.strip().lower(): name for name in header}
    if len(plain) < len(header):
        raise DataError(f"{file}: two columns have the same name; the columns are {', '.join(map(repr, header))}")
    found: dict[str, str] = {}
    for role in COLUMNS:
        wanted = renamed.get(role, role)
        if wanted.strip().lower() in plain:
            found[role] = plain[wanted.strip().lower()]
            continue
        near = nearest(wanted.lower(), plain)
        # A table without labels is fine; a table whose 'labels' or 'lable' is overlooked is not.
        if role == "path" or role in renamed or (role == "label" and near):
            hint = f"; did you mean {plain[near]!r}?" if near else ";"
            raise DataError(
                f"{file}: no column {wanted!r}{hint} The columns are {', '.join(map(repr, header)) or 'missing'}: "
                f"rename one, or pass columns={{{role!r}: …}}"
            )
    return found


def _texts(file: Path, column: str, values: list[Any], problem: str) -> list[str]:
    """Every value as text; empty cells and NaN are an error that names the rows."""
    try:
        texts = [_text(value) for value in values]
    except ValueError as error:  # a number too long to be written
        raise DataError(
            f"{file}: column {column!r} holds something that is neither text nor a number ({error})"
        ) from error
    empty = [row for row, text in enumerate(texts, 1) if text is None]
    if empty:
        rows = ", ".join(map(str, empty[:5])) + (" …" if len(empty) > 5 else "")
        raise DataError(
            f"{file}: {len(empty):,} of {len(values):,} rows {problem}: column {column!r} is empty or NaN in data row "
            f"{rows}; fill it or delete those rows"
        )
    return [text for text in texts if text is not None]


def _text(value: Any) -> str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of whole numbers with a gap somewhere comes as floats
    text = str(value).strip()
    return None if not text or text.lower() in ("nan", "<na>") else text


def _codes(values: list[Any]) -> np.ndarray:
    """Group numbers; an image without a group is a group of its own."""
    names = [_text(value) or f"\0{row}" for row, value in enumerate(values)]
    number = {name: i for i, name in enumerate(sorted(set(names)))}  # not an array: it would be as wide as the longest
    return np.array([number[name] for name in names], np.int64)


def _parts(file: Path, column: str, values: list[Any]) -> list[str]:
    parts = [PARTS.get(text.lower(), text) for text in _texts(file, column, values, "have no split")]
    if long := next((row for row, part in enumerate(parts, 1) if len(part) > 100), None):
        raise DataError(f"{file}: column {column!r} names a split of more than 100 letters in data row {long}")
    return parts


def _read_csv(file: Path) -> Columns:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from error
    try:
        text = content.decode("utf-8-sig")  # Excel writes a byte order mark
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{file}:{line}: not UTF-8; save the table as 'CSV UTF-8'") from error
    first = text.split("\n", 1)[0]
    delimiter = "\t" if file.suffix.lower() == ".tsv" else max(",;\t", key=first.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header, content = None, []
    try:
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if header is None:
                header = row
            elif len(row) != len(header):
                raise DataError(
                    f"{file}:{rows.line_num}: {len(row)} cells under {len(header)} column names; put quotes around "
                    f"cells that contain {delimiter!r}"
                )
            else:
                content.append(row)
    except csv.Error as error:
        raise DataError(f"{file}:{rows.line_num}: not a CSV table ({error})") from error
    if header is None:
        raise DataError(f"{file}: the table is empty; its first line names the columns: path,label")
    _check_header(file, header)
    return {name: [row[i] for row in content] for i, name in enumerate(header)}


def _check_header(file: Path, header: list[str]) -> None:
    if len(set(header)) < len(header):
        raise DataError(f"{file}: two columns have the same name; the columns are {', '.join(map(repr, header))}")


def _read_parquet(file: Path) -> Columns:
    parquet = require("pyarrow.parquet", extra="parquet", purpose="reading a Parquet table")
    try:
        table = parquet.ParquetFile(file).read()
        header, content = list(table.column_names), table.to_pydict()
    except Exception as error:  # a broken file can make the reader raise anything
        raise DataError(f"{file}: not a Parquet table that can be read ({error})") from error
    _check_header(file, header)
    return content


READERS: dict[str, Callable[[Path], Columns]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
}
