"""The web application: routers by resource, over one View. Built once, when the server starts.

Every handler is a coroutine, for the view belongs to the loop and is not to be read by a thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

import sidecar.status
from sidecar.admin import (
    dashboard,
    dead_letters,
    events,
    health,
    metrics,
    partitions,
    permission,
    process,
    records,
    reference,
    routes,
    status,
)
from sidecar.admin.access import Access
from sidecar.admin.bodies import BodyCheck
from sidecar.admin.control import Control
from sidecar.admin.descriptions import describe
from sidecar.admin.events import Feed, Snapshot
from sidecar.admin.hosts import HostCheck, OriginCheck
from sidecar.admin.letters import Letters
from sidecar.admin.problems import MEDIA_TYPE, Problem, handle_problems
from sidecar.admin.turns import Turns
from sidecar.admin.view import View

_PROBLEM = {
    "description": "What went wrong",
    "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


class AdminApp(FastAPI):
    """What it shows and does is None only where nothing but the description is wanted."""

    def __init__(
        self,
        view: View | None,
        control: Control | None,
        letters: Letters | None,
        access: Access | None,
        names: Iterable[str] = (),
    ) -> None:
        super().__init__(
            title="Sidecar admin API",
            summary="Health, state and control of a running sidecar.",
            version="1",
            openapi_url=None,  # see reference
            docs_url=None,
            redoc_url=None,
            responses={"default": _PROBLEM},
            generate_unique_id_function=_operation_id,
        )
        self.state.view = view
        self.state.control = control
        self.state.letters = letters
        self.state.access = access
        self.state.feed = None if view is None else Feed(view)
        pages = (
            dashboard,
            health,
            metrics,
            status,
            events,
            routes,
            dead_letters,
            partitions,
            records,
            permission,
            process,
            reference,
        )
        routers = [each.router for each in pages]
        self.state.resources = [route for router in routers for route in router.routes]
        for router in routers:
            self.include_router(router)
        handle_problems(self)
        # The last one added is asked first.
        self.add_middleware(BodyCheck)
        self.add_middleware(OriginCheck)
        self.add_middleware(HostCheck, names=tuple(names))
        self.add_middleware(Turns)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas["Problem"] = TypeAdapter(Problem).json_schema()
            # The framework describes models of bodies only, and a stream is none.
            snapshot = TypeAdapter(Snapshot).json_schema(
                ref_template="#/components/schemas/{model}"
            )
            for name, schema in {**snapshot.pop("$defs"), "Snapshot": snapshot}.items():
                schemas.setdefault(name, schema)
            describe(schemas, sidecar.status)
            document["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"}
            }
            for path in document["paths"].values():
                for method, operation in path.items():
                    if method not in ("get", "head"):
                        operation["security"] = [{"token": []}]
        return super().openapi()


def openapi_document() -> dict[str, Any]:
    """The description of the API, as openapi/admin.json holds it."""
    return AdminApp(None, None, None, None).openapi()


def _operation_id(route: APIRoute) -> str:
    return route.name
