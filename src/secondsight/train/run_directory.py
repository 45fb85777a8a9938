"""The run directory: ``config.toml``, ``metrics.jsonl``, ``checkpoints/``, ``best/`` and the report."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from secondsight import files
from secondsight.errors import RunError
from secondsight.train import checkpoint, recipe_file
from secondsight.train.recipe import FREE_KEYS, Recipe
from secondsight.train.tensorboard import Board


class RunDirectory:
    """Where a run keeps everything. Only the first of several processes writes."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / "best"
        self.config = self.path / "config.toml"
        self.metrics = self.path / "metrics.jsonl"

    @property
    def has_best(self) -> bool:
        return (self.best / "model.safetensors").is_file() and (self.best / "config.toml").is_file()

    def start(self, recipe: Recipe, *, resume: bool) -> None:
        """Make the directory, or make sure that it holds the run to go on with."""
        begun = self.metrics.exists() or bool(checkpoint.listing(self.checkpoints))
        foreign = self.config.exists() and not self.checkpoints.is_dir()  # a model's, say
        if (begun or foreign) and not resume:
            raise RunError(f"{self.path} already holds a run; continue it (--resume), or choose another place (--out)")
        try:
            if self.config.exists() and resume:  # the images are checked by their fingerprint
                check_same(recipe_file.read(self.config), recipe, where=self.path)
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            if (text := recipe_file.dumps(recipe)) != (
                self.config.read_text("utf-8") if self.config.exists() else None
            ):
                files.write_text(self.config, text)
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot be written: {error.strerror}; choose another place with --out"
            ) from error
        self._recover()

    def taken(self) -> contextlib.ExitStack:
        """Hold the directory while training in it: two processes would overwrite each other's checkpoints."""
        held = contextlib.ExitStack()
        try:
            held.enter_context(files.locked(self.path / ".lock"))
            held.callback((self.path / ".lock").unlink, missing_ok=True)
        except BlockingIOError as error:
            raise RunError(
                f"{self.path}: another process is training here; wait until it is done, or choose another --out"
            ) from error
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot be written: {error.strerror}; choose another place with --out"
            ) from error
        return held

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Say what a full or vanished disk means for the run."""
        from safetensors import SafetensorError

        try:
            yield
        except (OSError, SafetensorError) as error:
            kept = checkpoint.listing(self.checkpoints)
            have = f"what was trained up to {kept[0].name} is safe" if kept else "there is no checkpoint yet"
            reason = getattr(error, "strerror", None) or str(error)
            raise RunError(
                f"{self.path}: cannot be written ({reason}); {have}. Make room, then continue with: secondsight train "
                f"{self.path} --resume"
            ) from error

    def _recover(self) -> None:
        """Tidy up after a process that was killed while it wrote."""
        checkpoint.sweep(self.checkpoints)
        for aside in self.path.glob(".best.*.old"):  # killed between the two renames that replace best/
            if not self.best.exists() and (aside / "best").is_dir():
                os.replace(aside / "best", self.best)
            shutil.rmtree(aside, ignore_errors=True)
        for left in (*self.path.glob(".best.*.tmp"), *self.path.glob(".*.tmp")):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def check_same(own: Recipe, given: Recipe, *, where: Path) -> None:
    """Nothing may differ from the run's own recipe but what changes no number."""
    differing = [d for d in recipe_file.differences(own, given) if d.split(" ")[0] not in FREE_KEYS]
    if differing:
        raise RunError(
            f"{where} was started with another recipe; these keys differ: {', '.join(differing)}. Continue with its "
            f"own: secondsight train {where} --resume — or start a new run with another --out"
        )


class MetricsLog:
    """``metrics.jsonl``: one JSON object a line, appended and flushed; a resumed run goes on where it stood."""

    def __init__(self, path: Path, *, position: int = 0, enabled: bool = True, board: Board | None = None):
        self.path, self.enabled, self.board = path, enabled, board
        if enabled:
            try:
                self._file = path.open("ab")
            except OSError as error:
                raise RunError(f"{path}: cannot be written ({error.strerror}); move it away and try again") from error
            if self._file.tell() < position:
                self._file.close()
                raise RunError(
                    f"{path} is shorter than when the checkpoint was written ({position} bytes): it was changed"
                )
            self._file.truncate(position)
            self._file.seek(position)

    def write(self, kind: str, **values: Any) -> None:
        if self.enabled:
            self._file.write((json.dumps({"kind": kind, **values}) + "\n").encode())
            self._file.flush()
            if self.board is not None:
                self.board.write(kind, values)

    def position(self) -> int:
        """Bytes that are safely on disk."""
        if not self.enabled:
            return 0
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        if self.enabled:
            self._file.close()
        if self.board is not None:
            self.board.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every complete line of a ``metrics.jsonl``; a last line that is still being written is left out."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict) and "kind" in row:
            rows.append(row)
        elif number < len(lines):
            raise RunError(f"{path}:{number}: not a line of metrics; it was changed: delete the line")
    return rows
