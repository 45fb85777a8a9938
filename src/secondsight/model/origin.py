"""Where a model comes from: the classes that taught it, and those by which it was chosen.

A model directory keeps it as ``origin.json``, and so do embeddings that are kept. Figures on classes that taught a
model flatter it; with this they can be told from honest ones.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from secondsight import files
from secondsight.errors import ConfigError
from secondsight.terminal import json_text

FILE = "origin.json"


@dataclass(frozen=True)
class Origin:
    """``taught`` and ``chosen_on`` are names of classes; a model that nobody trained has neither."""

    data: str = ""  # as the recipe names it
    taught: tuple[str, ...] = ()
    chosen_on: tuple[str, ...] = ()

    def taught_among(self, classes: Iterable[str]) -> list[str]:
        """Which of some classes taught the model, in their order."""
        known = set(self.taught)
        return [name for name in classes if name in known]

    def held_out_among(self, classes: Iterable[str]) -> list[str]:
        """Which of some classes the model was chosen on, in their order."""
        known = set(self.chosen_on)
        return [name for name in classes if name in known]

    def write(self, folder: Path) -> None:
        """JSON, with a checksum: a damaged name of a class would turn a warning about flattering figures off."""
        files.write_text(folder / FILE, json_text({**asdict(self), "check": self._check()}, indent=1) + "\n")

    def _check(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def read(folder: Path) -> Origin | None:
    """The origin in a folder; None where there is none."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        content: Any = json.loads(path.read_text("utf-8"))
        names = {key: tuple(str(name) for name in content[key]) for key in ("taught", "chosen_on")}
        found = Origin(data=str(content["data"]), **names)
        if content.get("check", found._check()) != found._check():
            raise ValueError("its checksum does not fit")
        if content.keys() - {"data", "taught", "chosen_on", "check"}:
            raise ValueError("it has other keys")
        return found
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(
            f"{path} is damaged ({type(error).__name__}): remove it to use the model without it"
        ) from error
