"""The collection as a whole: its map, its codewords, its duplicates."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI

from secondsight.serve.service import Service


def install(app: FastAPI, services: Sequence[Service]) -> None:
    """Add the addresses."""
