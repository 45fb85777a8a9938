"""The recipes that come with secondsight: found in the repository or inside the installed package."""

from __future__ import annotations

from pathlib import Path

from secondsight.errors import UnknownName

_HERE = Path(__file__).resolve()
_PLACES = (_HERE.parents[1] / "recipes", _HERE.parents[3] / "recipes")  # in a wheel; in the repository


def recipes() -> dict[str, Path]:
    """Name → file, sorted by name."""
    for place in _PLACES:
        if found := sorted(place.glob("*.toml")):
            return {file.stem: file for file in found}
    return {}


def describe(file: Path) -> str:
    """The file's first comment line."""
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def find(name: str) -> Path:
    """A recipe by path, or by the name of a shipped one."""
    path = Path(name)
    if path.is_file():
        return path
    known = recipes()
    if name in known:
        return known[name]
    if path.suffix == ".toml" and path.stem in known and len(path.parts) == 1:
        return known[path.stem]
    raise UnknownName("recipe (neither a file nor a shipped name)", name, known)
