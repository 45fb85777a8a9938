"""Options that several verbs share, and how they are checked."""

from __future__ import annotations

import os
import shlex
from typing import Literal, cast

import typer

from secondsight.errors import ConfigError, SecondsightError, first_line, require_known

MISSING = typer.Option(
    "error", "--missing", help="If listed images are missing: error, or skip (leave them out and count them)."
)


def numbers(text: str, option: str, *, least: int = 1) -> list[int]:
    """``least`` or more whole numbers with commas between them."""
    words = [word.strip() for word in text.split(",")]
    if len(words) < least or not all(word.isascii() and word.isdigit() and len(word) < 19 for word in words):
        example = ",".join(["17", "23"][: max(1, least)]) if least > 1 else "1,2,4"
        raise ConfigError(f"{option} {text!r}: whole numbers with commas between them, such as {example}")
    return [int(word) for word in words]


def missing(word: str) -> Literal["error", "skip"]:
    return cast(Literal["error", "skip"], require_known("way with missing files", word, ["error", "skip"]))


def check_order(verb: str, model: str, data: str) -> None:
    """MODEL and DATA in the wrong order are seen before the network is built."""
    from secondsight.model.directory import model_folder

    def is_model(place: str) -> bool:
        try:
            return bool(model_folder(place))
        except SecondsightError:
            return False

    if os.path.isdir(model) and not is_model(model) and is_model(data):
        cure = f"secondsight {verb} {shlex.join([data, model])}"
        raise ConfigError(f"{model} is not a saved model, and {data} is; name the model first, as in: {cure}")


def device(name: str | None) -> str:
    """The device that was asked for, if it is there; without a name, cuda where there is one."""
    if name == "cpu":  # known to be there, and where an exported model runs there may be no torch to ask
        return name
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError, ValueError) as error:
        here = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        raise ConfigError(f"--device {name!r}: {first_line(error)}; here: {', '.join(here)}") from error
    return name


def place_among_processes() -> tuple[int, int]:
    """(rank, number of processes) as torchrun sets them."""
    found = []
    for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_WORLD_SIZE", "1")):
        text = os.environ.get(name) or default
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise ConfigError(f"{name}={text!r} in the environment is not a number; unset it, or start with torchrun")
        found.append(int(text))
    return found[0], found[1]
