"""Helm is fetched when the first test renders; without a way to it these skip, and fail in CI."""

from __future__ import annotations

import os

import pytest

from tests.rig.helm import NoHelm, helm


@pytest.fixture(scope="session", params=[3, 4], ids=["helm3", "helm4"])
def major(request: pytest.FixtureRequest) -> int:
    """A major version of helm that is there."""
    number: int = request.param
    _there(number)
    return number


@pytest.fixture(scope="session")
def with_helm() -> None:
    _there(4)


def _there(number: int) -> None:
    try:
        helm(number)
    except NoHelm as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
