"""TensorBoard, for those who have it: the numbers of metrics.jsonl as curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from secondsight import extras


class Board:
    """Writes every number of a line of metrics. Where it is not ``enabled`` it does nothing, and needs nothing."""

    def __init__(self, folder: Path, *, step: int, enabled: bool):
        self._writer: Any = None
        if enabled:
            extras.require("tensorboard", extra="tensorboard", purpose="train.tensorboard = true")
            from torch.utils.tensorboard.writer import SummaryWriter

            # What was written after the checkpoint that the run goes on from is taken back.
            self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def write(self, kind: str, values: dict[str, Any]) -> None:
        if self._writer is None:
            return
        for name, value in values.items():
            for key, number in value.items() if isinstance(value, dict) else [("", value)]:
                if isinstance(number, (int, float)) and name not in ("step", "epoch", "best"):
                    self._writer.add_scalar(f"{kind}/{name}{'/' if key else ''}{key}", number, values["step"])
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
