"""Keeps a lease while its service is busy with one thing: a thread beside the loop, which cannot renew meanwhile.

Loading a large state, replaying a long log, writing a snapshot, a decision that takes seconds: none of them may cost
the lease, or a rebuild that is longer than it would never end. But an entry that keeps its core busy for ever must not
keep the lease for ever: after HANG_S it is set aside, like one on which the core raises, and the process ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from shared.service.log.commit_log import CommitLog, LogEntry
from shared.service.log.lease import LEASE_S, RENEW_S, FencedError

HANG_S = 30.0  # the longest decision that was seen takes a quarter of a second
LOOK_S = RENEW_S / 2
HUNG_STATUS = 70  # exit status: an internal error (EX_SOFTWARE)
FAILED_STATUS = 1

log = structlog.get_logger()


class LeaseKeeper:
    """Of one driver. Its loop says what it does; the thread looks after it."""

    def __init__(self, connect: Callable[[], Redis], log: CommitLog, hang_s: float = HANG_S) -> None:
        """``connect`` makes a client for the thread's own loop; one entry may take ``hang_s``."""
        self._connect = connect
        self._log = log
        self._hang_s = hang_s
        self._loop_thread = threading.get_ident()
        self._is_kept = False
        self._shown_at_s = 0.0
        self._entry: LogEntry | None = None
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    # --- what the loop says ---------------------------------------------------------------------------------------

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """The lease is ours: it is kept until the block ends."""
        self._loop_thread = threading.get_ident()
        self.note_sign()
        self._is_kept = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._guard, name="lease-keeper", daemon=True)
            self._thread.start()
        try:
            yield
        finally:
            self._is_kept = False

    def note_sign(self) -> None:
        """The loop has shown a sign of life itself."""
        self._shown_at_s = time.monotonic()

    @contextmanager
    def handling(self, entry: LogEntry) -> Iterator[None]:
        """The core decides on this entry until the block ends."""
        self._entry = entry
        try:
            yield
        finally:
            self._entry = None

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    # --- the thread -----------------------------------------------------------------------------------------------

    def _guard(self) -> None:
        """Without this thread a long rebuild would lose its lease, and a hung core keep its process: it ends then."""
        try:
            self._watch()
        except Exception:
            log.critical("lease keeper failed, ending the process", service=self._log.service, exc_info=True)
            os._exit(FAILED_STATUS)

    def _watch(self) -> None:
        entry, busy_s, looked_at_s = None, 0.0, time.monotonic()
        while not self._stopped.wait(LOOK_S):
            now_s = time.monotonic()
            # a process that was stopped has seen no time pass, whatever the clock says
            seen_s, looked_at_s = min(now_s - looked_at_s, 2 * LOOK_S), now_s
            busy_s = busy_s + seen_s if entry is not None and self._entry is entry else 0.0
            entry = self._entry
            if not self._is_kept:
                continue
            if entry is not None and busy_s >= self._hang_s:
                asyncio.run(self._end(entry))
            if now_s - self._shown_at_s >= RENEW_S:
                asyncio.run(self._renew())

    async def _renew(self) -> None:
        try:
            async with self._connect() as redis:
                await CommitLog.of(redis, self._log).lease.renew()
                self.note_sign()
        except FencedError:
            self._is_kept = False  # the loop finds out with its next commit
        except (RedisError, OSError) as error:
            log.warning("lease not renewed", service=self._log.service, error=str(error))

    async def _end(self, entry: LogEntry) -> None:
        """Set the entry aside, and end the process: the core is in the middle of a decision that does not end."""
        reason = f"the core did not end within {self._hang_s:g} s"
        frame = sys._current_frames().get(self._loop_thread)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        log.critical("core hangs", service=self._log.service, entry=entry[0].decode(), reason=reason, stack=stack)
        try:
            async with self._connect() as redis:
                await asyncio.wait_for(CommitLog.of(redis, self._log).set_aside(entry, reason), LEASE_S)
        except (RedisError, OSError, FencedError, TimeoutError) as error:
            log.error("entry not set aside", service=self._log.service, error=str(error))  # the next life tries again
        os._exit(HUNG_STATUS)
