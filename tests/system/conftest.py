"""What takes a minute of waiting begins with the first of these tests, and is looked at by one of the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.lint import LintRuns
from tests.support.peers.agents import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the large agents out, and let pytest count them, where no folder has them."""
    left = [] if FOLDER else [item for item in items if item.get_closest_marker("agents")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


@pytest.fixture(scope="session", autouse=True)
def _lint_begins(request: pytest.FixtureRequest) -> None:
    """Begin early where a test of this run asks for it."""
    if any("lint_runs" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("lint_runs")


@pytest.fixture(scope="session")
def lint_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LintRuns]:
    """Runs of acplint: each agent directly and through the relay, all at once."""
    found = LintRuns(tmp_path_factory.mktemp("lint"))
    yield found
    found.close()
