"""How fast a request that runs gets its tokens, learnt from those that finished."""

from __future__ import annotations

PACE_WEIGHT = 0.1  # of the newest request in the learnt pace
PRIOR_TOKENS_PER_S = 20.0  # of one request among others, assumed where none of its model has finished at a node
MAX_PACES = 1024  # (model, node) that are remembered; the one that was heard of longest ago is forgotten first


class Paces:
    """Output tokens a second of one running request, prefill and interruptions included. Owns `State.paces`."""

    def __init__(self, paces: dict[str, float]) -> None:
        self._paces = paces

    def observe(self, model: str, node: str, output_tokens: int, seconds: float) -> None:
        """A request has finished ``seconds`` after it was pulled, with so many tokens since then."""
        if seconds <= 0:
            return  # pulled and finished at one time of the log: that says nothing of the pace
        key = f"{model} {node}"
        pace = output_tokens / seconds
        known = self._paces.pop(key, pace)  # and to the end: the first is the one to forget
        self._paces[key] = known + PACE_WEIGHT * (pace - known)
        if len(self._paces) > MAX_PACES:
            del self._paces[next(iter(self._paces))]

    def tokens_per_s(self, model: str, node: str) -> float:
        """Expected pace of one request of this model at this node."""
        return self._paces.get(f"{model} {node}", PRIOR_TOKENS_PER_S)
