"""What is kept of recent pictures: uploads that are asked about again, items that were just looked at."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import simplejpeg
from PIL import Image

from secondsight.errors import ConfigError
from secondsight.explain.geometry import Box, Frame

PREVIEW = 960  # pixels of the longer side


@dataclass(eq=False, kw_only=True)
class Seen:
    """One picture after the network: its embedding, and which part of it the network saw."""

    vector: np.ndarray  # (D,) of unit length
    frame: Frame
    name: str
    pixels: np.ndarray | None = None  # of an upload, no larger than a screen needs

    @cached_property
    def preview(self) -> bytes:
        """A JPEG of an upload, made when it is asked for."""
        return b"" if self.pixels is None else simplejpeg.encode_jpeg(self.pixels, quality=85, colorsubsampling="420")

    @property
    def places(self) -> Any:
        raise ConfigError(WITHOUT_FEATURES)

    def part(self, box: Box | None) -> Any:
        """The picture, or what lies in a box, with what each place adds."""
        raise ConfigError(WITHOUT_FEATURES)

    def vector_of(self, box: Box) -> np.ndarray:
        """(D,) of what lies in the box."""
        raise ConfigError(WITHOUT_FEATURES)


WITHOUT_FEATURES = (
    "this server runs an exported model, which gives whole pictures' vectors alone: for boxes, parts and explanations "
    "serve the index with its own model (torch, and no --model)"
)


class Shelf:
    """At most ``most`` pictures, those used last. Threads may share it."""

    def __init__(self, most: int):
        self.most = most
        self._kept: OrderedDict[Hashable, Seen] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Seen | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Hashable, kept: Seen) -> None:
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)

    def add(self, kept: Seen) -> str:
        """Keep an upload under a name that nobody can guess."""
        name = secrets.token_urlsafe(12)
        self.put(name, kept)
        return name

    def __len__(self) -> int:
        return len(self._kept)


def screen_size(pixels: np.ndarray) -> np.ndarray:
    """Decoded pixels, no larger than a screen needs."""
    image = Image.fromarray(pixels)
    image.thumbnail((PREVIEW, PREVIEW))
    return np.array(image)
