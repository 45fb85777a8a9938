"""What can be asked of the server: these become its OpenAPI description, as ``answers.py`` does."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

from secondsight.errors import ConfigError
from secondsight.explain.geometry import Box, checked_box
from secondsight.index.filters import Not, Where, parsed
from secondsight.serve.request_limits import Limits

Which = Annotated[int, Query(ge=0, le=99, description="Which of the collections that are served.")]
Id = Annotated[int, Field(ge=0, le=2**63 - 1)]
Sides = Annotated[
    list[float],
    Field(
        min_length=4,
        max_length=4,
        description="A part of the picture: left, top, right, bottom, as fractions of its sides.",
        examples=[[0.25, 0.1, 0.75, 0.6]],
    ),
]
Conditions = Annotated[
    dict[str, Any] | list[str],
    Field(
        description='Only items for which this holds. An object: {"label": "heron"} equal, {"label": ["heron", '
        '"egret"]} any of these, {"year": {"from": 2010, "to": 2015}} a range (an end may be left out), {"label": '
        '{"not": "heron"}}, {"path": "2024/*"} a pattern or a folder, {"label": null} has none. Or a list as on the '
        'command line: ["label=heron", "year>=2010"].',
        examples=[{"label": "heron"}],
    ),
]


class StrictRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class KnownPicture(StrictRequest):
    """A picture that the server knows: an item, or an upload that it still keeps; and perhaps a part of it."""

    id: Id | None = Field(default=None, description="An item of the collection.")
    query: str | None = Field(
        default=None, max_length=64, description="The name that an upload was given by /api/search."
    )
    box: Sides | None = None


class SearchRequest(StrictRequest):
    """What to look for: exactly one of id, query or vector, and examples for and against; or examples alone."""

    id: Id | None = Field(default=None, description="An item of the collection.")
    query: str | None = Field(default=None, max_length=64, description="The name of an earlier upload.")
    vector: list[float] | None = Field(default=None, max_length=65_536, description="A vector of this index's model.")
    box: Sides | None = None
    like: list[Id | KnownPicture] = Field(
        default=[], max_length=100, description="More like these: ids, or parts of pictures."
    )
    unlike: list[Id | KnownPicture] = Field(default=[], max_length=100, description="Less like these.")
    where: Conditions | None = None
    k: int = Field(default=20, ge=1, le=Limits.hits, description="How many hits.")
    collection: int = Field(default=0, ge=0, le=99, description="Which of the collections that are served.")


class ExplainRequest(StrictRequest):
    """Why two pictures match."""

    a: KnownPicture
    b: KnownPicture
    most: int = Field(default=200, ge=0, le=10_000, description="How many of the strongest links.")
    collection: int = Field(default=0, ge=0, le=99)


class PartsRequest(StrictRequest):
    """The parts of a picture that are worth searching for."""

    of: KnownPicture
    count: int = Field(default=6, ge=1, le=32)
    collection: int = Field(default=0, ge=0, le=99)


class DismissRequest(StrictRequest):
    """Items that are no duplicates of each other."""

    ids: list[Id] = Field(min_length=2, max_length=500)
    collection: int = Field(default=0, ge=0, le=99)


def box_of(sides: list[float] | None) -> Box | None:
    return None if sides is None else checked_box(sides)


def where_of(given: dict[str, Any] | list[str] | None) -> Where | None:
    """Conditions in JSON as the index takes them."""
    if not given:
        return None
    return parsed(given) if isinstance(given, list) else {key: _value(key, value) for key, value in given.items()}


def _value(key: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_value(key, one) for one in value]
    if isinstance(value, dict):
        if value.keys() == {"not"}:
            return Not(_value(key, value["not"]))
        if value and value.keys() <= {"from", "to"}:
            return value.get("from"), value.get("to")
        raise ConfigError(f'where {key!r}: an object is {{"from": …, "to": …}} or {{"not": …}}, got {sorted(value)}')
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ConfigError(f"where {key!r}: {value} is larger than any number in an index")
    return value
