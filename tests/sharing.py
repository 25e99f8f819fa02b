"""Which tests stay together where several processes share them (`make test`)."""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling


class FilesAndGroups(LoadGroupScheduling):  # type: ignore[misc] # a package without types
    """Tests of one ``xdist_group`` run in one process, one after the other, and so do the others of one file."""

    def _split_scope(self, nodeid: str) -> str:
        group_or_test: str = super()._split_scope(nodeid)
        return group_or_test.partition("::")[0]
