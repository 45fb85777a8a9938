"""What an exported file says about itself: which model it is, and how it wants a picture to be made square."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from secondsight.errors import WeightsError

FORMAT = 1
"""Of the description and of the graph's inputs and outputs; a reader refuses any other."""

KEY = "secondsight"
"""The entry of the ONNX file's metadata that holds the description, as JSON."""

RUNTIMES = ("auto", "torch", "compile", "onnx", "onnx-int8")

PRECISIONS = ("float32", "float16", "int8")

UNSEALED = "0" * 64
_SEAL = b'"check": "'


@dataclass(frozen=True)
class SquareTransform:
    """How a picture becomes S×S pixels: the model's own transform, in numbers."""

    name: str  # "resize": both sides to `size`; "resize-crop": the shorter side to `resize`, then the centre
    size: int  # S
    resize: int
    interpolation: str = "bilinear"  # antialiased


@dataclass(frozen=True)
class Description:
    """The contents of the metadata."""

    fingerprint: str  # of the model that was exported; vectors of another one are not comparable
    dim: int
    picture: SquareTransform
    precision: str = "float32"
    multiple: int = 0  # height and width may be any multiple of this; 0: only `picture.size`
    backbone: str = ""
    pooling: str = ""
    views: int = 1  # 2: the mirror image is part of the embedding
    version: str = ""  # of secondsight
    format: int = FORMAT
    check: str = UNSEALED  # SHA-256 of the file, with these zeros in its own place

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_metadata(cls, metadata: dict[str, str], *, file: str) -> Description:
        """The description in an ONNX file's metadata; an error that names the cure where there is none, or another."""
        if KEY not in metadata:
            raise WeightsError(
                f"{file} is an ONNX file, but not one of ours: make it with `secondsight export MODEL -o {file}`"
            )
        try:
            content: dict[str, Any] = json.loads(metadata[KEY])
            found = content.get("format")
            if found != FORMAT:
                raise WeightsError(
                    f"{file} has format {found!r}, this version of secondsight reads {FORMAT}: export the model again, "
                    f"or install the version that wrote it ({content.get('version') or 'unknown'})"
                )
            return cls(**{**content, "picture": SquareTransform(**content["picture"])})
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, WeightsError):
                raise
            raise WeightsError(f"{file}: its description is damaged ({error}): export the model again") from error


def sealed(content: bytes) -> bytes:
    """The content of a file with its checksum in its description: a wrong bit would give other vectors."""
    at = content.rindex(_SEAL) + len(_SEAL)
    return content[:at] + _digest(content, at).encode() + content[at + len(UNSEALED) :]


def is_whole(content: bytes) -> bool:
    """Whether a file is as it was written; True where it was before there were checksums."""
    at = content.rfind(_SEAL) + len(_SEAL)
    return at < len(_SEAL) or content[at : at + len(UNSEALED)] == _digest(content, at).encode()


def _digest(content: bytes, at: int) -> str:
    view, found = memoryview(content), hashlib.sha256()
    for piece in (view[:at], UNSEALED.encode(), view[at + len(UNSEALED) :]):
        found.update(piece)
    return found.hexdigest()


def agree(first: str, second: str) -> bool:
    """Whether vectors of two runtimes may stand in one index: they differ by less than 1e-3, as exporting has measured,
    unless one of them has fewer digits.

    >>> agree("torch", "onnx"), agree("onnx", "onnx-int8"), agree("onnx-half", "onnx-half")
    (True, False, True)
    """
    return first == second or not {first, second} & {"onnx-int8", "onnx-half"}
