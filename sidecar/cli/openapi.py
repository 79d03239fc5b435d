"""sidecar openapi: the description of the admin API, as openapi/admin.json holds it."""

from __future__ import annotations

import json
from argparse import Namespace

from sidecar.admin.app import openapi_document


def main(args: Namespace) -> int:
    print(json.dumps(openapi_document(), indent=2))
    return 0
