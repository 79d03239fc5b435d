"""What handlers ask for: the view of the application they belong to."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from sidecar.admin.view import View


async def _view(request: Request) -> View:
    view: View = request.app.state.view
    return view


AskedView = Annotated[View, Depends(_view)]
