"""The servers that tests are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from driver import Server, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A guarded server for the tests of a module that leave it alive. It ends well after the last of them."""
    with serving("run") as server:
        yield server
        server.alive()
        assert server.finish() == 0
        assert "panicked" not in server.log


@pytest.fixture
def own() -> Iterator[Server]:
    """A guarded server for one test."""
    with serving("run") as server:
        yield server
