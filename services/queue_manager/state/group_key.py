"""What a group is found under while it is open: requests with equal keys join one group."""

from __future__ import annotations

from typing import NamedTuple

from shared.messages.requests.request_kind import RequestKind


class GroupKey(NamedTuple):
    """Of a group that takes newcomers, or of a resume group (``root``)."""

    kind: RequestKind = RequestKind("", "")
    tenant: str = ""
    cluster: int = 0
    """Of lengths (`services.queue_manager.learnt.clusters`)."""
    place: str = ""
    """The node where its requests begin at once, or where their KV lies; ``""``: they wait, and may do so anywhere."""
    is_new: bool = False
    """First attempts: neither lost by a node nor evicted."""
    root: str = ""
    """Of a resume group, the group that its members joined first."""
    warm_at: str = ""
    """The node that has cached a good part of its members' prompts, of those that wait; they may do so anywhere."""
    needs: str = ""
    """As in `Submit`."""
    goes_to: str = ""
    """Of a resume group whose KV has left a node that only prefills, the one at which its members go on at once."""

    @property
    def is_movable(self) -> bool:
        """Newcomers join it to wait, wherever that is."""
        return self.is_new and not self.place
