"""The addresses of the server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from importlib.resources import files as package_files
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError
from starlette.formparsers import MultiPartException, MultiPartParser

from secondsight.errors import ConfigError
from secondsight.index import Index
from secondsight.serve import answers, facets, requests, surveys, troubles
from secondsight.serve.decoders import Decoders
from secondsight.serve.guard import Guard
from secondsight.serve.metrics import Metrics
from secondsight.serve.request_limits import Limits
from secondsight.serve.requests import Which
from secondsight.serve.service import Service, chosen, described
from secondsight.version import __version__

TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
TYPES |= {"svg": "image/svg+xml"}

DESCRIPTION = """Search a collection by picture, by part of a picture, by example; see why two pictures match.

Errors are `{"error": what is wrong, "cure": what to do about it}`. 503 comes with `Retry-After`. Where the server was
started with a token, send it as `Authorization: Bearer TOKEN`.
"""

ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": answers.Trouble, "description": words}
    for code, words in {
        400: "No request that can be read.",
        404: "Not there, or no longer kept.",
        413: "Too large.",
        422: "Cannot be done; the answer says why.",
        503: "Busy: come back after `Retry-After` seconds.",
    }.items()
}

ItemId = Annotated[int, Path(ge=0, le=2**63 - 1)]


def application(
    indexes: Sequence[Index],
    *,
    token: str | None = None,
    hosts: set[str] | None = None,
    limits: Limits | None = None,
) -> Guard:
    """The server of these collections, as an ASGI application.

    Args:
        indexes: What is served; the first is what the page opens.
        token: Only who has it may ask.
        hosts: Names that the server answers to; None for any.
        limits: What a request may cost.
    """
    limits = limits or Limits()
    decoders = Decoders(limits)
    services = [Service(index, decoders, limits) for index in indexes]
    metrics = Metrics(services, decoders)

    @contextlib.asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        # The first request comes at once, and finds a server that loads its model.
        loading = [asyncio.create_task(service.run(service.warm)) for service in services]
        yield
        for task in loading:
            task.cancel()
        decoders.close()
        for service in services:
            service.close()

    app = FastAPI(
        title="secondsight",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,  # the usual page of documentation asks another host for its scripts
        redoc_url=None,
        lifespan=life,
    )
    troubles.install(app, limits)
    _page(app)
    _searching(app, services)
    _items(app, services)
    _state(app, services, metrics)
    surveys.install(app, services)
    return Guard(app, token=token, hosts=hosts, limits=limits, metrics=metrics, decoders=decoders)


def _page(app: FastAPI) -> None:
    """The page's files, read once: no name in a request ever becomes a path."""
    for file in (package_files("secondsight.serve") / "page").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            address = "/" if file.name == "index.html" else f"/{file.name}"
            app.add_api_route(address, _file(file.read_bytes(), kind), include_in_schema=False)


def _file(content: bytes, kind: str) -> Any:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}

    async def endpoint(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=kind, headers=headers)

    return endpoint


def _searching(app: FastAPI, services: Sequence[Service]) -> None:
    form = requests.SearchRequest.model_json_schema(ref_template="#/components/schemas/{model}")["properties"]
    fields = {name: {"type": "string", "description": f"JSON: {name}."} for name in ("box", "where", "like", "unlike")}
    fields |= {name: form[name] for name in ("k", "collection")}
    picture = {"type": "string", "format": "binary", "description": "A picture: JPEG, PNG, WebP, GIF, TIFF, HEIC …"}
    body = {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"file": picture, **fields}, "required": ["file"]}
            },
            "application/json": {"schema": {"$ref": "#/components/schemas/SearchRequest"}},
        },
    }

    @app.post(
        "/api/search",
        response_model=answers.SearchAnswer,
        responses=ERRORS,
        openapi_extra={"requestBody": body},
        summary="Find what is like a picture, a part of it, an item, a vector, or examples",
    )
    async def search(request: Request) -> JSONResponse:
        asked, upload = await _asked(request)
        return JSONResponse(await chosen(services, asked.collection).search(asked, upload))

    @app.post(
        "/api/explain",
        response_model=answers.ExplainAnswer,
        responses=ERRORS,
        summary="Why two pictures match, place by place",
    )
    async def explain(asked: requests.ExplainRequest) -> JSONResponse:
        return JSONResponse(await chosen(services, asked.collection).explain(asked.a, asked.b, asked.most))

    @app.post(
        "/api/parts",
        response_model=answers.PartsAnswer,
        responses=ERRORS,
        summary="Parts of a picture that are worth searching for",
    )
    async def parts(asked: requests.PartsRequest) -> JSONResponse:
        return JSONResponse({"parts": await chosen(services, asked.collection).parts(asked.of, asked.count)})

    # The description of what the search's body refers to.
    usual = app.openapi

    def described_openapi() -> dict[str, Any]:
        schema = usual()
        made = requests.SearchRequest.model_json_schema(ref_template="#/components/schemas/{model}")
        known = schema["components"]["schemas"]
        known.update({name: part for name, part in made.pop("$defs", {}).items() if name not in known})
        known.setdefault("SearchRequest", made)
        return schema

    app.openapi = described_openapi


class Form(MultiPartParser):
    """starlette's, but no upload is ever written to a disk: the guard has bounded it."""

    spool_max_size = 0  # no bound


async def _asked(request: Request) -> tuple[requests.SearchRequest, bytes | None]:
    """A search from JSON, or from a form with a file."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return _read(await request.body()), None
    if kind != "multipart/form-data":
        raise ConfigError(f"a body of {kind or 'no type'}; send application/json, or multipart/form-data with a file")
    try:
        form = await Form(request.headers, request.stream(), max_files=1, max_fields=12, max_part_size=1 << 20).parse()
    except (MultiPartException, UnicodeError) as error:  # some character sets of Python's cannot be decoded from
        raise ConfigError(f"a form that cannot be read ({error}); see /openapi.json") from error
    fields: dict[str, Any] = {}
    upload = None
    for name, value in form.multi_items():
        if isinstance(value, str):
            fields[name] = _json(value, f"the field {name!r}")
        elif name == "file":
            upload = await value.read()
    if upload is None:
        raise ConfigError("the form has no file; send the picture as the field 'file'")
    return requests.SearchRequest.model_validate(fields), upload


def _read(body: bytes) -> requests.SearchRequest:
    """Parsed and checked in one step: for a vector of 512 numbers a seventh of the time that json.loads alone takes."""
    try:
        return requests.SearchRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] != "json_invalid":
            raise
        raise ConfigError(
            f"the body is not JSON ({first['msg'].removeprefix('Invalid JSON: ')}); see /openapi.json"
        ) from error


def _json(text: str | bytes, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{what} is not JSON ({error}); see /openapi.json") from error


def _items(app: FastAPI, services: Sequence[Service]) -> None:
    @app.get(
        "/api/items",
        response_model=answers.ItemsAnswer,
        responses=ERRORS,
        summary="Items in the order of their ids",
    )
    async def items(
        where: Annotated[str | None, Query(max_length=20_000, description="JSON, as in a search.")] = None,
        offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        collection: Which = 0,
    ) -> JSONResponse:
        service = chosen(services, collection)
        given = None if where is None else _json(where, "where")
        if given is not None and not isinstance(given, (dict, list)):
            raise ConfigError("where is a JSON object or a list of conditions; see /openapi.json")
        condition = requests.where_of(given)

        def found() -> dict[str, Any]:
            page = service.index.items(condition, offset=offset, limit=limit)
            return {"items": [described(item) for item in page], "total": service.index.count(condition)}

        return JSONResponse(await service.run(found))

    picture: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}}, "description": "A JPEG."}}

    @app.get("/api/thumbnail/{id}", responses=ERRORS | picture, response_class=Response, summary="A small picture")
    async def thumbnail(id: ItemId, side: Literal["96", "192", "384"] = "192", collection: Which = 0) -> Response:
        content = await chosen(services, collection).picture(id, int(side), keep=True)
        return _jpeg(content, 86_400)

    @app.get("/api/image/{id}", responses=ERRORS | picture, response_class=Response, summary="An item's picture")
    async def image(id: ItemId, side: Literal["960", "1920"] = "960", collection: Which = 0) -> Response:
        return _jpeg(await chosen(services, collection).picture(id, int(side), keep=False), 3600)

    @app.get("/api/query/{name}", responses=ERRORS | picture, response_class=Response, summary="An upload, upright")
    async def query(name: Annotated[str, Path(max_length=64)], collection: Which = 0) -> Response:
        service = chosen(services, collection)
        kept = await service.kept(requests.KnownPicture(query=name))
        return _jpeg(await service.run(lambda: kept.preview), 3600)


def _jpeg(content: bytes, seconds: int) -> Response:
    return Response(content, media_type="image/jpeg", headers={"cache-control": f"private, max-age={seconds}"})


def _state(app: FastAPI, services: Sequence[Service], metrics: Metrics) -> None:
    @app.get(
        "/api/collections",
        response_model=answers.CollectionsAnswer,
        summary="What is served, and what it can be filtered by",
    )
    async def collections() -> JSONResponse:
        return JSONResponse({"collections": [await service.run(_described, service) for service in services]})

    @app.get("/healthz", response_model=answers.Health, summary="Whether the server is well")
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok", "items": [len(service.index) for service in services]})

    @app.get("/metrics", summary="For Prometheus", response_class=Response)
    async def prometheus() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _described(service: Service) -> dict[str, Any]:
    info, trouble = service.index.info(), service.model_trouble()
    model = None if trouble else service.network().model
    return {
        "name": service.index.path.name,
        "version": hashlib.sha256(str(service.index.path.resolve()).encode()).hexdigest()[:8],
        "items": info["items"],
        "dimension": info["dimension"],
        "model": info["model"].get("description"),
        "how": info["model"].get("how it was made"),
        "meaning": info["scores"].get("meaning", ""),
        "cut": info["scores"].get("cut"),
        "generation": info["generation"],
        "trouble": trouble,
        "explains": model is not None,
        "exact": bool(model is not None and model.pooling.additive),
        "codewords": bool(model is not None and getattr(model.pooling, "codebooks", None)),
        **facets.facets(service.index),
    }
