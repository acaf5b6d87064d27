"""Which deployment served which conversation: prefix affinity without a tokenizer.

A conversation's prefix is named by a chain of hashes, one link for each message, over the
messages in canonical JSON. The deployment that served the longest known chain most likely
still holds its KV cache. Bounded, in this process alone.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence

_MAX_LINKS = 20_000


def chain(items: Iterable[object], seed: str = "") -> list[bytes]:
    """Hash of every prefix of `items`, shortest first: link k names items 0 to k."""
    links: list[bytes] = []
    state = hashlib.blake2b(seed.encode(), digest_size=16).digest()
    for item in items:
        text = json.dumps(item, sort_keys=True, ensure_ascii=False, default=str)
        state = hashlib.blake2b(state + text.encode("utf-8", "replace"), digest_size=16).digest()
        links.append(state)
    return links


class Affinity:
    """Last server of each known chain link, least recently used dropped first."""

    def __init__(self, limit: int = _MAX_LINKS) -> None:
        self._limit = limit
        self._served: OrderedDict[bytes, str] = OrderedDict()

    def remember(self, links: Sequence[bytes], deployment: str) -> None:
        for link in links:
            self._served[link] = deployment
            self._served.move_to_end(link)
        while len(self._served) > self._limit:
            self._served.popitem(last=False)

    def prefer(self, links: Sequence[bytes], healthy: Sequence[str]) -> tuple[str, int] | None:
        """(deployment, known links) of the longest prefix that a healthy deployment served."""
        for known in range(len(links), 0, -1):
            deployment = self._served.get(links[known - 1])
            if deployment is not None and deployment in healthy:
                return deployment, known
        return None

    def forget(self, deployment: str) -> None:
        """Drop every link of a deployment that is gone."""
        for link in [k for k, v in self._served.items() if v == deployment]:
            del self._served[link]

    def __len__(self) -> int:
        return len(self._served)
