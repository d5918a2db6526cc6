"""What goes into the API and what comes out of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

__all__ = [
    "About",
    "Asked",
    "EncodeBody",
    "Encoded",
    "Error",
    "Health",
    "Hit",
    "Item",
    "Items",
    "LookupBody",
    "LookupQuery",
    "SearchBody",
    "SearchQuery",
    "SearchResult",
    "UploadQuery",
]

Id = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
_MAX_COLUMNS = 1_000_000


def _examples(*bodies: JsonDict) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": list(bodies)})


class _Strict(BaseModel):
    """Names that are not known are refused, never passed over."""

    model_config = ConfigDict(extra="forbid")


class _Encoding(_Strict):
    view: Annotated[
        str | None,
        Field(
            max_length=200,
            description="The view that the query is of. May be left out where only one is possible.",
        ),
    ] = None
    bits: Annotated[int | None, Field(ge=1, le=8191, description="Code length; the longest there is unless given.")] = (
        None
    )


class _Query(_Encoding):
    text: Annotated[
        str | None, Field(max_length=100_000, description="Search by a text, through the model's own vocabulary.")
    ] = None
    item: Annotated[Id | None, Field(description="Search by an item.")] = None
    code: Annotated[str | None, Field(max_length=2048, description="Search by a code, in hexadecimal digits.")] = None
    complete: Annotated[
        bool, Field(description="Text: complete a last word that is unknown and still being typed.")
    ] = False
    expand: Annotated[
        int, Field(ge=0, le=20, description="Text: add the words of this many items, those that match best.")
    ] = 0


class _Vector(BaseModel):
    vector: Annotated[
        list[Finite] | None, Field(max_length=_MAX_COLUMNS, description="Search by a row of features of `view`.")
    ] = None


class _Where(BaseModel):
    database: Annotated[
        str | None,
        Field(
            max_length=200,
            description="Which codes to search: the name of a view, or of an index. By default the first that is "
            "not of the query's own view.",
        ),
    ] = None


class _Nearest(_Where):
    k: Annotated[int | None, Field(ge=1, description="How many items; 10 unless given.")] = None
    rank: Annotated[
        Literal["distance", "scores"],
        Field(
            description="Order by Hamming distance, or by the query's real-valued scores: bits that the query is "
            "unsure about count less."
        ),
    ] = "distance"


class _Within(_Where):
    radius: Annotated[int | None, Field(ge=0, description="How many bits may differ; 2 unless given.")] = None
    limit: Annotated[
        int | None, Field(ge=1, description="How many items to list, 100 unless given; all are counted.")
    ] = None


class SearchQuery(_Query, _Nearest):
    """A search by text, item or code."""


class SearchBody(_Query, _Vector, _Nearest):
    """A search by text, item, code or vector: exactly one of them."""

    model_config = _examples({"text": "rain cloud", "k": 5}, {"item": 3, "view": "image", "database": "text"})


class LookupQuery(_Query, _Within):
    """A lookup by text, item or code."""


class LookupBody(_Query, _Vector, _Within):
    """A lookup by text, item, code or vector: exactly one of them."""

    model_config = _examples({"text": "rain cloud", "radius": 2}, {"item": 3, "view": "image"})


class EncodeBody(_Query, _Vector):
    """What to encode: a text, item or vector, exactly one of them."""

    model_config = _examples({"text": "rain cloud"}, {"item": 3, "view": "image"})


class UploadQuery(_Encoding, _Nearest):
    """A search by an uploaded picture."""


class EncodeUploadQuery(_Encoding):
    """Encoding an uploaded picture."""


class Item(BaseModel):
    """What is known about an item."""

    id: int = Field(description="Its row in the data set, and its id in the index.")
    name: str = Field(description="What the source calls it.")
    title: str
    text: str = Field(description="Its words; empty where there are none.")
    labels: list[str]
    picture: str | None = Field(description="Where its picture is, below the server's address.")
    flat: bool = Field(description="The picture is a drawing without colours of its own.")


class Hit(Item):
    """An item that was found."""

    distance: int = Field(description="Bits in which its code and the query's differ.")
    code: str = Field(description="Its code: bit j is bit j % 8 (1, 2, 4, ...) of byte j // 8.")
    score: float | None = Field(description="Where scores decided the order.")


class Asked(BaseModel):
    """The query, as it was understood."""

    by: Literal["text", "item", "vector", "code", "image"]
    view: str | None
    n_bits: int
    code: str
    text: str | None = Field(description="The text that was encoded: completed where that was asked for.")
    known: list[str] = Field(description="Words of the text that the vocabulary has. Without any, nothing is found.")
    unknown: list[str]
    suggestions: list[str] = Field(description="Words that begin like the last one.")
    examples: list[Item] = Field(description="Items whose words were added to the text.")


class SearchResult(BaseModel):
    """What was found, nearest first."""

    query: Asked
    database: str
    total: int = Field(description="Items found; a lookup may list fewer.")
    hits: list[Hit]


class Encoded(BaseModel):
    """A code."""

    query: Asked
    bits: str = Field(description="The code as 0 and 1, bit 0 first.")


class Items(BaseModel):
    """Some items, in order of id."""

    total: int
    items: list[Item]


class View(BaseModel):
    """A view of the model."""

    name: str
    columns: int
    kind: Literal["text", "image", "vector"] = Field(description="What a query of this view can be made of.")
    size: int | None = Field(description="Side in pixels of the square that a picture is scaled to.")


class Collection(BaseModel):
    """Codes of one length."""

    bits: int
    method: str
    views: list[View]
    databases: dict[str, int] = Field(description="Number of codes by database.")
    expands: bool = Field(description="Whether `expand` has items to take words from.")


class Limits(BaseModel):
    """What a request may ask for."""

    k: int
    radius: int
    text: int
    body: int
    pixels: int


class About(BaseModel):
    """What this server has."""

    name: str
    version: str
    items: int
    credit: str = Field(description="Where the data came from, and its licence where that is known.")
    collections: list[Collection] = Field(description="By code length, the longest first.")
    limits: Limits


class Health(BaseModel):
    """The server is up."""

    status: Literal["ok"] = "ok"


class Error(BaseModel):
    """What was wrong: what was needed, what came, what to do."""

    detail: str
