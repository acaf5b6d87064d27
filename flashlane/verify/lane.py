"""The verify lane of one request: what the client gets, whole or as a stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from flashlane.flight import Flight
from flashlane.payload import payloads
from flashlane.request import Kind
from flashlane.verify.check import FIRST_FAILED, Check
from flashlane.verify.finished import Finished
from flashlane.verify.judge import accepted
from flashlane.verify.marks import marked, sign_of_life
from flashlane.verify.second import Second, second_pass

log = logging.getLogger("flashlane.verify")

T = TypeVar("T")


@dataclass
class _Opened:
    """A stream whose first chunk is there, unless it has none; `second` of a second pass."""

    stream: AsyncIterator[Any]
    rest: AsyncIterator[Any]
    begun: list[Any]
    second: Second | None = None

    async def close(self, *, whole: bool) -> None:
        """Give the engine back, also while this task is being cancelled."""

        async def close() -> None:
            if self.second is not None and not whole:
                await self.second.bill_partial()
            await _close(self.stream)

        await asyncio.shield(asyncio.ensure_future(close()))


async def settle(
    flight: Flight, check: Check, data: Mapping[str, Any], response: Any, key: Any
) -> Any:
    """The response that the client gets, of the first pass in `response` or of a second one."""
    flight.see_payload(response)
    if check.fell_back:
        flight.answered_by = "direct"
        return response
    finished = Finished(_kind(flight))
    finished.see(response)
    if await accepted(flight, check, finished):
        flight.answered_by = "verify"
        return response
    flight.next_pass()
    response = (await second_pass(data, flight, check, key)).response
    flight.see_payload(response)
    flight.answered_by = "direct"
    return response


async def relay(
    flight: Flight,
    check: Check,
    data: Mapping[str, Any],
    first: AsyncIterator[Any],
    key: Any,
    keepalive_s: float,
) -> AsyncGenerator[Any, None]:
    """The chunks that the client gets: nothing of the first pass before its verdict.

    A sign of life goes out every `keepalive_s` seconds until there is an answer. Whoever leaves
    this generator ends the pass that runs. Raises what the second pass raises.
    """
    kind = _kind(flight)
    if check.fell_back:
        opening = asyncio.ensure_future(_opened(first))
    else:
        kept: list[Any] = []
        reading = asyncio.ensure_future(_read(flight, check, first, kept))
        async with aclosing(_waits(reading, keepalive_s)) as waits:
            async for _ in waits:
                yield sign_of_life(kind)
        if reading.result():
            flight.answered_by = "verify"
            note = flight.verdict_note()
            for chunk in kept:
                flight.see_chunk(chunk)
                # Sent all at once: their times tell nothing of the engine's speed.
                flight.last_chunk = flight.first_chunk
                yield marked(chunk, kind, note)
            return
        kept.clear()
        flight.next_pass()
        opening = asyncio.ensure_future(_second(flight, check, data, key))
    async with aclosing(_waits(opening, keepalive_s)) as waits:
        async for _ in waits:
            yield sign_of_life(kind)
    opened = opening.result()
    flight.answered_by = "direct"
    note = flight.verdict_note()
    whole = False
    try:
        for chunk in opened.begun:
            flight.see_chunk(chunk)
            yield marked(chunk, kind, note)
        async for chunk in opened.rest:
            flight.see_chunk(chunk)
            yield marked(chunk, kind, note)
        whole = True
    finally:
        await opened.close(whole=whole)


async def _read(flight: Flight, check: Check, first: AsyncIterator[Any], kept: list[Any]) -> bool:
    """Read the first pass to its end into `kept`; whether its answer may go out."""
    finished = Finished(_kind(flight))
    try:
        async for chunk in first:
            if check.fell_back:
                # The stream broke and LiteLLM goes on with another group: two halves are no answer.
                await _close(first)
                return False
            kept.append(chunk)
            finished.see(chunk)
            for payload in payloads(chunk):
                flight.see_payload(payload)
    except asyncio.CancelledError:
        await _close(first)
        raise
    except Exception as error:
        log.warning("a first pass failed (%s): the direct lane answers", type(error).__name__)
        flight.judged(False, FIRST_FAILED)
        return False
    return await accepted(flight, check, finished)


async def _second(flight: Flight, check: Check, data: Mapping[str, Any], key: Any) -> _Opened:
    second = await second_pass(data, flight, check, key)
    opened = await _opened(second.response)
    opened.second = second
    return opened


async def _opened(stream: AsyncIterator[Any]) -> _Opened:
    """Wait for the first chunk of `stream`, which is closed where nobody waits for it any more."""
    opened = _Opened(stream, aiter(stream), [])
    try:
        opened.begun.append(await anext(opened.rest))
    except StopAsyncIteration:
        pass
    except BaseException:
        await opened.close(whole=False)
        raise
    return opened


async def _waits(task: asyncio.Future[T], every_s: float) -> AsyncGenerator[None, None]:
    """Yield every `every_s` seconds until `task` ends; end it where nobody listens any more."""
    try:
        while not (await asyncio.wait({task}, timeout=every_s))[0]:
            yield None
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def _close(stream: object) -> None:
    aclose = getattr(stream, "aclose", None)
    if aclose is not None:
        try:
            await aclose()
        except Exception as error:
            log.warning("closing a pass raised %s", type(error).__name__)


def _kind(flight: Flight) -> Kind:
    return flight.endpoint  # type: ignore[return-value]
