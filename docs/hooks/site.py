"""What mkdocs asks while it builds: the reference is made from the code, equations become MathML, and the search works
on a page that was opened from the disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import commands
import pooling_pictures
import python_api
import recipe_keys
from equations import fence

ROOT = Path(__file__).parents[2]
SOURCE = "https://github.com/secondsight/secondsight/blob/main/"

GENERATED = {
    "reference/commands.md": commands.page,
    "reference/recipe-keys.md": recipe_keys.page,
    "reference/python.md": python_api.page,
    "pooling-pictures.md": pooling_pictures.page,
    "index.md": lambda: front(ROOT / "README.md"),
}
"""Page → the function that writes it."""


def front(readme: Path) -> str:
    """README as the first page: its links are seen from docs/."""
    text = readme.read_text("utf-8")

    def seen(found: re.Match[str]) -> str:
        return found[0].removeprefix("docs/") if found[0].startswith("docs/") else f"../{found[0]}"

    return re.sub(r"(?<=\]\()(?!https?:|#)[^)\s]+", seen, text)


def on_config(config: Any) -> Any:
    config.mdx_configs["pymdownx.superfences"] = {
        "custom_fences": [{"name": "math", "class": "math", "format": fence}],
    }
    if others := unlisted(config.nav):
        config.nav.append({"More": others})
    return config


def unlisted(nav: Any) -> list[str]:
    """Pages that no entry of the navigation names: they come last, so that none is lost."""
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    return sorted(pages - set(_named(nav)))


def _named(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from _named(inner)


def on_files(files: Files, config: Any) -> Files:
    for name, write in GENERATED.items():
        files.append(File.generated(config, name, content=write()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links out of docs/ (a recipe, a benchmark, CONTRIBUTING) lead to the repository, if what they name is there."""
    here = (ROOT / "docs" / page.file.src_uri).parent

    def outside(found: re.Match[str]) -> str:
        target, _, anchor = found[2].partition("#")
        path = (here / target).resolve()
        if ROOT / "docs" in path.parents or not path.exists():
            return found[0]  # mkdocs checks it
        return f"{found[1]}({SOURCE}{path.relative_to(ROOT)}{'#' + anchor if anchor else ''})"

    return re.sub(r"(\[[^\]]*\])\(((?:\.\./)+[^)\s]+)\)", outside, markdown)


def on_post_build(config: Any) -> None:
    """A page from the disk may fetch no JSON; a script it may load."""
    search = Path(config.site_dir) / "search"
    index = (search / "search_index.json").read_text("utf-8")
    (search / "search_index.js").write_text(f"var __index = {index}", "utf-8")
