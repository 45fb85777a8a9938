"""A table of results as a TOML file: which runs it consists of, and nothing about what came out.

    # The title
    #
    # What it shows, in a few lines.
    recipe = "cub-vgg16-jcf-32-8"          # every row starts from it
    folds = [0, 1]
    seeds = [0]
    baseline = "average"                   # the row that the others are held against; { layer = "bp" }: the one that
                                           # has bp as its layer and is like them otherwise

    [set]                                  # for every row, the keys of a recipe
    train.epochs = 5

    [[rows]]
    name = "average"
    set = { model.pooling = "average", model.pooling_options = {} }

    [[axes]]                               # and a row for every combination of the axes' values
    name = "layer"
    key = "model.pooling"
    values = ["jcf-4", { name = "bp", set = { model.pooling = "bp", model.pooling_options = {} } }]

A row's recipe is the shipped one, changed by the table's ``set``, by those of its axes in their order, and by its own.
``set`` replaces a key as a whole: options that are not named again are gone.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from secondsight import shipped, strict_toml
from secondsight.errors import ConfigError, UnknownName
from secondsight.strict_toml import Strict
from secondsight.train import recipe_file
from secondsight.train.recipe import Recipe

Numbers = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
Changes = dict[str, dict[str, Any]]
"""Section → key → value."""
CostColumn = Literal["parameters", "gflops", "ms_head", "native"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class RowSection(Strict):
    name: str = Field(min_length=1)
    recipe: str | None = None  # instead of the table's
    changes: Changes = Field(default_factory=dict, alias="set")
    folds: Numbers | None = None  # instead of the table's
    seeds: Numbers | None = None
    note: str = ""


class PointSection(Strict):
    name: str = Field(min_length=1)
    changes: Changes = Field(default_factory=dict, alias="set")
    note: str = ""


class AxisSection(Strict):
    name: str = Field(min_length=1)  # the heading of its column
    key: str | None = None  # what plain values are values of, such as "loss.name"
    values: list[PointSection] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _plain_values(cls, content: Any) -> Any:
        """``"triplet"`` under the key ``loss.name`` is ``{name = "triplet", set = {loss.name = "triplet"}}``."""
        if not isinstance(content, dict) or not isinstance(content.get("values"), list):
            return content
        section, _, key = str(content.get("key") or "").partition(".")

        def point(value: Any) -> Any:
            if isinstance(value, dict):
                return value
            if not section or not key:
                raise ConfigError(f"plain values such as {value!r} need a key such as 'loss.name', got {section!r}")
            return {"name": f"{value}", "set": {section: {key: value}}}

        return {**content, "values": [point(value) for value in content["values"]]}


class TableFile(Strict):
    recipe: str
    folds: Numbers = Field(default=[0])
    seeds: Numbers = Field(default=[0])
    changes: Changes = Field(default_factory=dict, alias="set")
    rows: list[RowSection] = Field(default=[])
    axes: list[AxisSection] = Field(default=[])
    heading: str = "row"  # of the first column, where there are no axes
    baseline: str | dict[str, str] | None = None  # a row, or an axis's value: the row that differs in that axis alone
    plot: Annotated[list[CostColumn], BeforeValidator(_as_list)] = Field(default=[])  # what Recall@1 is drawn against
    best_first: bool = False  # rows in the order of their Recall@1, instead of the table's


@dataclass(frozen=True)
class Row:
    """One row: a recipe, to be run with several folds and seeds."""

    name: str
    cells: tuple[str, ...]  # its name, by axis
    base: Recipe
    changes: Changes
    folds: tuple[int, ...]
    seeds: tuple[int, ...]
    note: str
    source: str  # where it is written, for messages

    @property
    def slug(self) -> str:
        """The name as a file's."""
        return re.sub(r"[^\w.+-]+", "-", self.name).strip("-")

    @property
    def runs(self) -> int:
        """How many the table asks for."""
        return len(self.folds) * len(self.seeds)

    def recipe(self, *, fold: int, seed: int) -> Recipe:
        """What one run of this row is."""
        changes = merged(self.changes, {"validation": {"fold": fold}, "train": {"seed": seed}})
        return recipe_file.make(merged(self.base.model_dump(mode="python"), changes), source=self.source)


@dataclass(frozen=True)
class Table:
    """A table, read and checked: every row's recipe is valid."""

    name: str
    title: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    baseline: str | dict[str, str] | None
    plot: tuple[str, ...]
    best_first: bool
    command: str  # that makes it

    def row(self, name: str) -> Row | None:
        return next((row for row in self.rows if row.name == name), None)

    def baseline_of(self, row: Row) -> Row | None:
        """What a row is held against: one row for all, or the one that differs in the baseline's axis alone."""
        if isinstance(self.baseline, dict):
            cells = [self.baseline.get(column, cell) for column, cell in zip(self.columns, row.cells, strict=False)]
            found = self.row(" ".join(cells))
        else:
            found = self.row(self.baseline) if self.baseline is not None else None
        return None if found is row else found

    @property
    def baseline_words(self) -> str:
        """How the page calls the baseline."""
        return " ".join(self.baseline.values()) if isinstance(self.baseline, dict) else self.baseline or ""


def merged(content: Mapping[str, Mapping[str, Any]], *changes: Mapping[str, Mapping[str, Any]]) -> Changes:
    """Sections are merged, the keys in them replaced.

    >>> merged({"train": {"epochs": 5, "seed": 0}}, {"train": {"epochs": 1}})
    {'train': {'epochs': 1, 'seed': 0}}
    """
    result: Changes = {section: dict(keys) for section, keys in content.items()}
    for change in changes:
        for section, keys in change.items():
            result[section] = {**result.get(section, {}), **keys}
    return result


def read(path: str | Path) -> Table:
    """The table in a file; an error says where the mistake is and what was meant."""
    content, text = strict_toml.read(path)
    return make(content, Path(path), text)


def make(content: Mapping[str, Any], file: Path, text: str) -> Table:
    """The table that a nested dictionary describes; ``file`` and its ``text`` give it a name, a title and messages."""
    written = strict_toml.validate(TableFile, content, source=str(file), text=text)
    title, words = _comment(text)
    columns = tuple(axis.name for axis in written.axes) or (written.heading,)
    table = Table(
        name=file.stem,
        title=title,
        text=words,
        columns=columns,
        rows=_rows(written, file),
        baseline=written.baseline,
        plot=tuple(written.plot),
        best_first=written.best_first,
        command=f"secondsight reproduce {file.stem} --data PATH",
    )
    _check(table, file)
    return table


def _rows(content: TableFile, file: Path) -> tuple[Row, ...]:
    """The rows that are written out, then those of the axes."""
    bases: dict[str, Recipe] = {}

    def row(cells: Sequence[str], changes: Sequence[Changes], note: str, own: RowSection | None = None) -> Row:
        name, source = " ".join(cells), f"{file}, row {' '.join(cells)!r}"
        base = (own and own.recipe) or content.recipe
        if base not in bases:
            beside = file.parent / base
            bases[base] = recipe_file.read(beside if beside.is_file() else shipped.find(base))
        return Row(
            name=name,
            cells=tuple(cells),
            base=bases[base],
            changes=merged(content.changes, *changes),
            folds=tuple((own and own.folds) or content.folds),
            seeds=tuple((own and own.seeds) or content.seeds),
            note=note,
            source=source,
        )

    written = [row([section.name], [section.changes], section.note, section) for section in content.rows]
    products = itertools.product(*(axis.values for axis in content.axes)) if content.axes else ()
    return (
        *written,
        *(
            row([p.name for p in points], [p.changes for p in points], " ".join(p.note for p in points if p.note))
            for points in products
        ),
    )


def _check(table: Table, file: Path) -> None:
    if not table.rows:
        raise ConfigError(f"{file} has no rows: write [[rows]], or [[axes]] whose combinations are the rows")
    for row in table.rows:
        row.recipe(fold=row.folds[0], seed=row.seeds[0])
    twice = [slug for slug, count in Counter(row.slug for row in table.rows).items() if count > 1]
    if twice:
        raise ConfigError(f"{file}: two rows are called {twice[0]!r}; results are kept by name: give them two")
    _check_baseline(table, file)


def _check_baseline(table: Table, file: Path) -> None:
    if isinstance(table.baseline, str) and table.row(table.baseline) is None:
        raise ConfigError(f"{file}: {UnknownName('baseline', table.baseline, [row.name for row in table.rows])}")
    for axis, value in table.baseline.items() if isinstance(table.baseline, dict) else ():
        if axis not in table.columns:
            raise ConfigError(f"{file}: {UnknownName('axis of the baseline', axis, table.columns)}")
        index = table.columns.index(axis)
        known = {row.cells[index] for row in table.rows if index < len(row.cells)}
        if value not in known:
            raise ConfigError(f"{file}: {UnknownName(f'{axis} of the baseline', value, known)}")


def _comment(text: str) -> tuple[str, str]:
    """The title and the words after it, from the comment that a file begins with."""
    lines = [line[1:].strip() for line in itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())]
    title, *rest = lines or [""]
    return title, "\n".join(rest).strip()
