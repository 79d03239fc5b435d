"""`python -m tests.rig` fetches the broker, so that no test waits for a download."""

from __future__ import annotations

import sys

from tests.rig.distribution import obtain
from tests.rig.errors import NoKafka

try:
    obtain()
except NoKafka as missing:
    sys.stderr.write(f"no broker fetched: {missing}\n")
