"""The files that come with secondsight: recipes and tables, in the repository or inside the installed package."""

from __future__ import annotations

from pathlib import Path

from secondsight.errors import UnknownName

RECIPES, TABLES = "recipes", "recipes/tables"
_KINDS = {RECIPES: "recipe", TABLES: "table"}
_PLACES = tuple(Path(__file__).resolve().parents[up] for up in (0, 2))  # in a wheel; in the repository


def files(folder: str = RECIPES) -> dict[str, Path]:
    """Name → file, sorted by name."""
    for place in _PLACES:
        if found := sorted((place / folder).glob("*.toml")):
            return {file.stem: file for file in found}
    return {}


def describe(file: Path) -> str:
    """The file's first comment line."""
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def find(name: str, folder: str = RECIPES) -> Path:
    """A file by its path, or by the name of a shipped one."""
    path, known = Path(name), files(folder)
    if path.is_file():
        return path
    stem = name.removesuffix(".toml")
    if stem not in known:
        raise UnknownName(f"{_KINDS[folder]} (neither a file nor a shipped name)", name, known)
    return known[stem]
