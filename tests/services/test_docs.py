"""The examples of pages that need a service, typed in as they stand: blocks with a line `# with Kafka` and the like."""

from __future__ import annotations

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
    text = page.read_text()
    places = {"localhost:9092": broker.bootstrap}
    if "PostgreSQL\n" in text:
        places["postgresql://localhost/shop"] = database.create_database(f"shop_{page.stem.lower()}")
    wanted = [topic for topic in ("trades", "people", "bids", "ticks") if f'"{topic}"' in text]
    for topic in wanted:
        broker.create_topic(topic, 2, {})
    assert run(page, services=places) > 0
    for topic in {*wanted, "prices", "latest"} & set(broker.topics()):
        broker.delete_topic(topic)
