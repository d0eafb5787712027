"""The examples of pages that need a service, typed in as they stand: blocks with a line `# with Kafka` and the like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.docs.test_readme import PAGES, ROOT, blocks, here, run
from tests.services.broker import Broker
from tests.services.database import Database

__all__ = ["here"]

WITH_SERVICES = [page for page in PAGES if any(block.service for block in blocks(page.read_text()))]


@pytest.mark.usefixtures("here")
@pytest.mark.filterwarnings("ignore::headrace.RowsNotUsed")
@pytest.mark.parametrize("page", WITH_SERVICES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_run_with_services(page: Path, broker: Broker, database: Database):
    places = {"localhost:9092": broker.bootstrap}
    if "# with PostgreSQL" in page.read_text():
        places["postgresql://localhost/shop"] = database.create_database(f"shop_{page.stem}")
    prepare: Callable[[], object] = lambda: [broker.create_topic(t, 2, {}) for t in ("trades", "people", "bids")]  # noqa: E731
    if "# with Kafka" in page.read_text():
        prepare()
    assert run(page, services=places) > 0
    for topic in ("trades", "people", "bids", "prices", "latest"):
        if topic in broker.topics():
            broker.delete_topic(topic)
