"""How exact must the answer be? Read from the instruction spans alone, never from material.

The body's structure decides first, then a linear model over the words of the ask, in ten languages.
Where the model hesitates the ask is `unsure`, and unsure counts as exact.
"""

from __future__ import annotations

from flashlane.decision import Reason, Signals
from flashlane.exactness.model import Reading, model
from flashlane.request import RequestView

_NAMES = {
    "howmany": "how many",
    "howmuch": "how much",
    "whatis": "what is",
    "value": "a value",
    "ineed": "what is needed",
    "all": "all of it",
    "nomiss": "nothing left out",
    "proof": "proofreading",
    "calc": "a calculation",
    "howworks": "how it works",
    "judge": "an opinion",
    "suggest": "ideas",
    "convert": "conversion",
    "short": "brevity",
    "roughly": "no details",
}


def exactness(view: RequestView) -> Signals:
    """Signals of one request."""
    if view.structure:
        fields = ", ".join(view.structure)
        return Signals(True, "structure", (Reason("structure", f"the request carries {fields}"),))
    if view.multimodal:
        return Signals(
            True, "multimodal", (Reason("multimodal", "the request carries images or files"),)
        )
    if view.token_prompt:
        return Signals(
            True, "token_prompt", (Reason("token_prompt", "the prompt is a list of token ids"),)
        )
    if not view.ask.strip():
        words = "no ask was found beside the material: unsure counts as exact"
        return Signals(True, "unsure", (Reason("unsure", words),))
    return _signals(model().read(view.ask))


def _signals(reading: Reading) -> Signals:
    share = f"{reading.probability:.0%} likely to need an exact answer"
    if reading.exact and reading.probability < 0.5:
        words = f"the ask is {share}: unsure counts as exact"
        return Signals(True, "unsure", (Reason("unsure", words),), reading.probability)
    about = ", ".join(_NAMES.get(concept, concept) for concept in reading.concepts)
    words = f"the ask reads as {reading.kind}" + (f" ({about})" if about else "") + f", {share}"
    if reading.exact:
        return Signals(True, reading.kind, (Reason("exact_ask", words),), reading.probability)
    reasons = (Reason("broad_ask", words),)
    return Signals(False, reading.kind, reasons, 1.0 - reading.probability)
