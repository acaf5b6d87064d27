"""Whether a first pass's answer may go out."""

from __future__ import annotations

import asyncio
import logging

from flashlane.decision import Reason
from flashlane.flight import Flight
from flashlane.payload import as_mapping
from flashlane.verdict import Verdict, verdict
from flashlane.verify.check import Check
from flashlane.verify.finished import Finished

log = logging.getLogger("flashlane.verify")


async def accepted(flight: Flight, check: Check, finished: Finished) -> bool:
    """The verdict on `finished`, left in `flight` with its reasons.

    It is found in a worker thread: a long text takes a tenth of a second.
    """
    found = _known(flight, finished)
    if found is None and check.view is not None:
        try:
            found = await asyncio.to_thread(
                verdict,
                finished.text,
                check.original,
                check.view,
                finish_reason=finished.finish_reason,
            )
        except Exception as error:
            # The text of an unexpected error may quote the prompt.
            log.error("a check failed (%s): the direct lane answers", type(error).__name__)
    if found is None:
        found = Verdict(False, (Reason("check_failed", "the answer could not be checked"),))
    flight.judged(found.accepted, ",".join(reason.code for reason in found.reasons))
    return found.accepted


def _known(flight: Flight, finished: Finished) -> Verdict | None:
    """What needs no look at the text."""
    if _whole_prompt(as_mapping(flight.timings.get("pflash"))):
        reason = Reason("whole_prompt", "nothing was compressed: this is the direct answer")
        return Verdict(True, (reason,))
    if finished.tool_calls:
        return Verdict(False, (Reason("tool_calls", "the answer calls a tool"),))
    if finished.several:
        return Verdict(False, (Reason("several_answers", "more than one answer was given"),))
    return None


def _whole_prompt(pflash: dict[str, object]) -> bool:
    """Whether the engine read all of the prompt, by its own report or the compressor's failure."""
    original, kept = pflash.get("original_tokens"), pflash.get("kept_tokens")
    if original is not None:
        return original == kept
    reason = str(pflash.get("reason") or "")
    return reason == "prompt_shape" or reason.startswith("compressor_")
