"""sidecar config-schema: the JSON schema of the configuration file, for editors and charts."""

from __future__ import annotations

import json
from argparse import Namespace

from sidecar.settings import json_schema


def main(args: Namespace) -> int:
    print(json.dumps(json_schema(), indent=2))
    return 0
