"""What handlers ask for: the view and the control of the application they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request

from sidecar.admin.control import Control
from sidecar.admin.view import View


async def _view(request: Request) -> View:
    view: View = request.app.state.view
    return view


async def _control(request: Request) -> Control:
    control: Control = request.app.state.control
    return control


AskedView = Annotated[View, Depends(_view)]
AskedControl = Annotated[Control, Depends(_control)]


async def while_asked(request: Request, answer: Coroutine[Any, Any, bool]) -> bool:
    """The answer; False, and no more work on it, once nobody waits for it any more."""
    answering = asyncio.ensure_future(answer)
    leaving = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        return answering.done() and answering.result()
    finally:
        answering.cancel()
        leaving.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
