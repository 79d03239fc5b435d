"""What handlers ask for: the view and the control of the application they belong to."""

from __future__ import annotations

from typing import Annotated

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
