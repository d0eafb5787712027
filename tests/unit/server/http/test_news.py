"""Tasks that wait for more rows."""

from __future__ import annotations

import asyncio
import threading

from tests.unit.server.standing_in import StandIn

from headrace.server.http.news import News


def test_one_call_wakes_all_and_nothing_is_missed():
    source, news = StandIn(), News()
    begun, woken = threading.Barrier(2), []

    async def follow() -> int:
        seen = 0
        with news.about(source) as event:
            while seen < 100:
                event.clear()
                if (now := len(source.streams["numbers"])) == seen:
                    await asyncio.wait_for(event.wait(), 60)
                    woken.append(now)
                seen = now
        return seen

    async def run() -> list[int]:
        tasks = [asyncio.create_task(follow()) for _ in range(5)]
        await asyncio.sleep(0)
        assert len(source.listeners) == 1
        await asyncio.to_thread(begun.wait)
        return await asyncio.gather(*tasks)

    def add() -> None:
        begun.wait()
        for number in range(100):
            source.add("numbers", [number])

    thread = threading.Thread(target=add)
    thread.start()
    assert asyncio.run(run()) == [100] * 5
    thread.join()
    assert source.listeners == set()


def test_all_are_woken_at_the_end():
    source, news = StandIn(), News()

    async def run() -> None:
        with news.about(source) as event:
            await asyncio.to_thread(news.wake_all)
            await asyncio.wait_for(event.wait(), 60)

    asyncio.run(run())
    news.wake_all()
    source.add("numbers", [1])
