"""What ``secondsight losses`` prints: every loss as plain values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from secondsight.losses.registry import LOSSES, option_defaults


def listing() -> list[dict[str, Any]]:
    """One dict a loss: name, options with defaults, what it expects of a batch, paper, provider, summary."""
    return [
        {
            "name": name,
            "options": option_defaults(name),
            "expects": asdict(loss.expects),
            "paper": loss.paper,
            "provider": loss.provider,
            "summary": (loss.__doc__ or "").splitlines()[0],
        }
        for name, loss in LOSSES.items()
    ]
