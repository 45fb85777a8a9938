"""What the server answers: only described here, for its OpenAPI description; what makes the answers is elsewhere."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ItemAnswer(BaseModel):
    id: int = Field(description="Stays what it is, and is not used again.")
    label: str | None
    path: str | None = Field(description="As it stands in the folder or table that it came from.")
    width: int | None
    height: int | None
    columns: dict[str, Any] = Field(description="What else the table says about it.")


class Hit(ItemAnswer):
    score: float = Field(description="Cosine: 1 is the same picture.")
    probability: float | None = Field(description="How likely it is a match, in the sense of `meaning`.")
    match: bool = Field(description="Above the score at which this collection's matches end.")


class SearchAnswer(BaseModel):
    hits: list[Hit]
    query: str | None = Field(
        default=None, description="Name of the upload, for boxes and explanations; kept for a while."
    )
    meaning: str = Field(description="What a probability says.")
    why: str | None = Field(default=None, description="Why there are fewer hits than asked for.")
    seen: list[float] | None = Field(default=None, description="The part of the query that the model looked at.")
    milliseconds: dict[str, float] = Field(description="That the search took (`all`), and embedding alone (`embed`).")


class ItemsAnswer(BaseModel):
    items: list[ItemAnswer]
    total: int


class Trouble(BaseModel):
    """Every error: what is wrong, and what to do about it."""

    error: str
    cure: str


Maps = list[list[float]]


class ExplainedPicture(BaseModel):
    """One of two pictures, place by place."""

    name: str
    grid: list[int] = Field(description="Rows and columns of places.")
    seen: list[float] = Field(description="Where the places lie: left, top, right, bottom, as fractions of its sides.")
    share: Maps = Field(description="What each place adds to the similarity; together they are `similarity`.")
    effect: Maps = Field(description="What the similarity would lose without the place.")
    distinct: Maps | None = Field(
        default=None, description="What sets the pair apart from other pictures; where the sum is exact."
    )
    codeword: list[int] | None = Field(description="The strongest codeword of each place, row after row.")


class ExplainAnswer(BaseModel):
    similarity: float = Field(description="Cosine of the two embeddings.")
    exact: bool = Field(description="Whether the maps add up to it; otherwise they are an approximation.")
    method: str
    error: float = Field(description="By how much the maps miss it.")
    misses: bool = Field(description="Whether that is too much to speak of shares.")
    sides: list[float] = Field(description="The sums of what speaks for the match and of what speaks against it.")
    cancellation: float = Field(description="How many times the similarity was weighed for and against.")
    words: list[str] = Field(description="The same in sentences.")
    a: ExplainedPicture
    b: ExplainedPicture
    links: list[tuple[int, int, float]] = Field(
        description="Place of a, place of b (counted row after row), what they add together; the strongest first."
    )
    codewords: list[float] | None = Field(description="What each codeword adds to the similarity.")


class Part(BaseModel):
    box: list[float] = Field(description="Left, top, right, bottom, as fractions of the picture's sides.")
    strength: float = Field(description="Its share of the picture's content.")


class PartsAnswer(BaseModel):
    parts: list[Part]


class MapAnswer(BaseModel):
    ids: list[int]
    places: list[tuple[float, float]] = Field(description="Of each item, in the unit square.")
    labels: list[str]
    label: list[int] = Field(description="Of each item, its place in `labels`; -1: it has none.")


class Patch(BaseModel):
    jpeg: str = Field(description="A data: address.")
    weight: float = Field(description="How much the place belongs to the codeword.")
    id: int | None = Field(description="The item that it is from.")


class Codeword(BaseModel):
    number: int
    usage: float = Field(description="Its share of all places.")
    carried: float = Field(description="Its share of what the embeddings hold.")
    patches: list[Patch] = Field(description="The places that belong to it most.")


class CodewordsAnswer(BaseModel):
    images: int = Field(description="How many pictures were looked at.")
    codewords: list[Codeword]


class Group(BaseModel):
    tier: str = Field(description="bytes: the same file; picture: saved again; subject: the same subject.")
    score: float
    items: list[ItemAnswer]


class DuplicatesAnswer(BaseModel):
    total: int = Field(description="How many groups there are; the first 200 are sent.")
    groups: list[Group]


class DismissAnswer(BaseModel):
    dismissed: list[int]


class Count(BaseModel):
    label: str
    count: int


class Column(BaseModel):
    name: str
    kind: str = Field(description="number or text.")
    values: list[Any] = Field(description="All of them, where they are few.")
    ends: list[Any] | None = Field(description="The least and the largest number.")


class Collection(BaseModel):
    name: str
    version: str = Field(description="Changes with the place of the index: for addresses of pictures.")
    items: int
    dimension: int
    model: str | None
    how: str | None = Field(description="How the model was made.")
    meaning: str = Field(description="What a probability says.")
    cut: float | None = Field(description="The score at which matches end.")
    generation: int = Field(description="Grows with every change of the index.")
    trouble: str | None = Field(description="Why pictures cannot be embedded here; null if they can.")
    explains: bool = Field(description="Whether there are boxes, parts and explanations.")
    exact: bool = Field(description="Whether explanations add up exactly.")
    codewords: bool = Field(description="Whether /api/codewords has something to show.")
    labels: list[Count]
    columns: list[Column]


class CollectionsAnswer(BaseModel):
    collections: list[Collection]


class Health(BaseModel):
    status: str
    items: list[int] = Field(description="Of each collection.")
