"""Runs batches: reads their requests, sends what the core chooses, writes what comes back, and ends them.

A batch goes from ``validating`` (its file is read on a thread) to ``in_progress``, then ``finalizing`` (its results
become files) to ``completed``; or to ``failed``, ``expired``, ``cancelled``. Each change is on the disk before anything
is done by it. In ``finalizing`` the names of the result files stand in the record before they are made, so whatever
step a crash interrupts is taken again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

import msgspec
import structlog

from services.batches.decisions.core import BatchCore, Sending
from services.batches.decisions.open_batch import OpenBatch
from services.batches.decisions.verdict import AnswerVerdict
from services.batches.intake.lines import InputLines
from services.batches.metrics import BatchMetrics
from services.batches.records import transitions
from services.batches.records.answer_line import answer_line, unanswered_line
from services.batches.sending.running import RunningBatch
from services.batches.sending.sender import BatchSender, Reply
from services.batches.store.batch_store import BatchStore
from services.batches.store.file_store import FileStore
from services.batches.store.ids import new_id
from services.batches.store.result_files import ERRORS, OUTPUT, ResultFiles
from shared.messages.batches.batch_lines import CANCELLED, EXPIRED, REVOKED, AnswerBody
from shared.messages.batches.batches import BatchRecord, LineProblem, StoredFile
from shared.service.background.tasks import cancel_all

DISK_RETRY_S = 1.0  # until what could not be written is written again
MAX_SLEEP_S = 60.0  # a clock that steps is noticed within this time
UNANSWERED_A_TURN = 500  # lines that are written before others have a turn

_log = structlog.get_logger()


class BatchRunner:
    """All batches of a service. Everything happens on one loop; ``clock`` answers Unix seconds."""

    def __init__(
        self,
        core: BatchCore,
        files: FileStore,
        batches: BatchStore,
        sender: BatchSender,
        metrics: BatchMetrics,
        *,
        check: Callable[[Path, str], InputLines],
        keep_s: int,
        clock: Callable[[], float],
    ) -> None:
        """``check`` reads an input file for an endpoint, on a thread; ``keep_s``: how long results are kept."""
        self._core = core
        self._files = files
        self._batches = batches
        self._sender = sender
        self._metrics = metrics
        self._check = check
        self._keep_s = keep_s
        self._clock = clock
        self._running: dict[str, RunningBatch] = {}
        self._changing: dict[str, asyncio.Task[None]] = {}  # batches that begin or end
        self._news = asyncio.Event()
        self._fault: BaseException | None = None

    async def run(self) -> None:
        """For ever; raises what a task of a batch failed with."""
        for record in self._batches.all():
            if not record.has_ended:
                self.begin(record)
        try:
            while self._fault is None:
                self._turn()
                await self._wait()
            raise self._fault
        finally:
            out = [task for one in self._running.values() for task in one.out.values()]
            await cancel_all([*out, *self._changing.values()])
            for one in self._running.values():
                one.close()

    def begin(self, record: BatchRecord) -> None:
        """A batch that is new, or goes on after a restart."""
        if record.finalizing_s is None:
            self._change(record.id, self._begin(record.id))
        else:
            self._change(record.id, self._make_files(record.id))

    def cancel(self, record: BatchRecord) -> BatchRecord:
        """No more of it is sent, and what is out is called back. OSError where the disk takes no more."""
        changed = transitions.cancelling(record, self._clock())
        self._batches.save(changed)
        if self._core.get(record.id):
            self._stop(record.id, CANCELLED)
        return self.as_it_stands(changed)

    def as_it_stands(self, record: BatchRecord) -> BatchRecord:
        """With the counts of now."""
        running = self._core.get(record.id)
        return transitions.counted(record, running.counts) if running else record

    # --- one turn of the loop -------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._news.clear()
        now = self._clock()
        are_written = [self._write_waiting(one) for one in self._running.values()]
        self._core.is_blocked = not all(are_written)
        for batch in self._core.overdue(now):
            self._stop(batch, EXPIRED)
        for sending in self._core.take(now):
            self._send(sending)
        for batch in self._core.done():
            if batch not in self._changing:
                self._change(batch, self._end(batch))
        self._metrics.show(self._core, len(self._running.keys() | self._changing.keys()), now)

    async def _wait(self) -> None:
        now = self._clock()
        wakes_s = self._core.wakes_s(now)
        sleep_s = MAX_SLEEP_S if wakes_s is None else min(max(wakes_s - now, 0.0), MAX_SLEEP_S)
        if self._core.is_blocked:
            sleep_s = min(sleep_s, DISK_RETRY_S)
        try:
            async with asyncio.timeout(sleep_s):
                await self._news.wait()
        except TimeoutError:
            return

    def _stop(self, batch: str, why: str, but: int | None = None) -> None:
        """Call back what is out, ``but`` for a request whose answer is the reason."""
        self._core.stop(batch, why)
        self._running[batch].call_back(but)
        self._news.set()

    def _write_waiting(self, running: RunningBatch) -> bool:
        """Whether nothing waits any more."""
        try:
            running.results.write_waiting()
        except OSError as error:
            _log.error("answers_not_written", problem=str(error), num_waiting=running.results.num_waiting)
            return False
        return True

    # --- requests -------------------------------------------------------------------------------------------------

    def _send(self, sending: Sending) -> None:
        batch, number = sending.batch, sending.number
        running = self._running[batch]
        task = asyncio.create_task(self._ask(sending, running), name=f"{batch} {number}")
        running.out[number] = task

        def ended(_: asyncio.Task[None]) -> None:
            del running.out[number]
            if task.cancelled():
                self._core.given_up(batch, number)
            self._note_end(task)

        task.add_done_callback(ended)

    async def _ask(self, sending: Sending, running: RunningBatch) -> None:
        record = self._batches.get(sending.batch)
        assert record is not None, "a batch that runs is kept"
        request = running.request(sending.number)
        left_s = record.expires_s - self._clock()
        reply = await self._sender.send(record, bytes(request.body), sending.deadline_s, left_s)
        verdict = self._core.answered(sending.batch, sending.number, reply.status, reply.retry_after_s, self._clock())
        self._metrics.answers.labels(verdict.value).inc()
        if verdict is AnswerVerdict.REVOKED:
            self._stop(sending.batch, REVOKED, but=sending.number)
        if verdict in (AnswerVerdict.COMPLETED, AnswerVerdict.FAILED):
            self._keep(running, sending, request.custom_id, reply, is_output=verdict is AnswerVerdict.COMPLETED)

    def _keep(self, running: RunningBatch, sending: Sending, custom_id: str, reply: Reply, *, is_output: bool) -> None:
        body = AnswerBody(reply.status, reply.request_id, msgspec.Raw(reply.body))
        running.results.append(answer_line(sending.batch, sending.number, custom_id, body), is_output=is_output)
        self._write_waiting(running)

    # --- begins and ends ------------------------------------------------------------------------------------------

    def _change(self, batch: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name=f"change {batch}")
        self._changing[batch] = task

        def ended(_: asyncio.Task[None]) -> None:
            del self._changing[batch]
            self._note_end(task)

        task.add_done_callback(ended)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._news.set()
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fault = self._fault or fault

    async def _begin(self, batch: str) -> None:
        record = self._record(batch)
        path = self._files.path(record.asked.input_file_id)
        results = ResultFiles(self._batches.folder(batch))
        lines, settled = InputLines(), list[tuple[int, bool]]()
        try:
            lines = await asyncio.to_thread(self._check, path, record.asked.endpoint)
            settled = await asyncio.to_thread(lambda: list(results.settled()))
        except OSError as error:
            lines.problems.append(LineProblem(code="file_unreadable", message=error.strerror or "it cannot be read"))
        except ValueError as error:
            lines.problems.append(LineProblem(code="results_damaged", message=str(error)))
        if lines.problems:
            await self._update(batch, lambda record: transitions.failed(record, lines.problems, self._clock()))
            self._metrics.ended.labels(self._record(batch).status).inc()
            return
        record = await self._update(batch, lambda record: transitions.in_progress(record, len(lines), self._clock()))
        self._running[batch] = RunningBatch(lines, results, path)
        self._core.begin(batch, record.tenant, record.expires_s, len(lines), settled)
        if record.cancelling_s is not None:
            self._stop(batch, CANCELLED)

    async def _end(self, batch: str) -> None:
        """Nothing of it is out: write why the rest has no answer, and make its results files."""
        running, left = self._running[batch], self._core.get(batch)
        assert left is not None, "it is done, and not ended"
        await self._write_unanswered(batch, running, left)
        await asyncio.to_thread(running.results.sync)
        usage = await asyncio.to_thread(running.results.usage)
        counts = await asyncio.to_thread(running.results.counted, left.counts)
        output = new_id("file-", self._clock()) if running.results.output.exists() else None
        errors = new_id("file-", self._clock()) if running.results.errors.exists() else None
        results = transitions.BatchResults(counts, usage, left.stops, output, errors)
        await self._update(batch, lambda record: transitions.finalizing(record, results, self._clock()))
        self._core.end(batch)
        running.close()
        del self._running[batch]
        await self._make_files(batch)

    async def _write_unanswered(self, batch: str, running: RunningBatch, left: OpenBatch) -> None:
        numbers = left.unsettled()
        for begin in range(0, len(numbers), UNANSWERED_A_TURN):
            some = numbers[begin : begin + UNANSWERED_A_TURN]
            lines = [unanswered_line(batch, one, running.request(one).custom_id, left.stops) for one in some]
            running.results.append(b"".join(lines), is_output=False)
            await _until_written(running.results.write_waiting)
            await asyncio.sleep(0)
        left.settle_rest()
        await _until_written(running.results.write_waiting)

    async def _make_files(self, batch: str) -> None:
        record = self._record(batch)
        expires_s = int(self._clock()) + (record.asked.output_expires_s or self._keep_s)
        for file, name in ((record.output_file_id, OUTPUT), (record.error_file_id, ERRORS)):
            path = self._batches.folder(batch) / name
            if file is None or not path.exists():  # an earlier life has made it
                continue
            stored = StoredFile(
                id=file,
                tenant=record.tenant,
                filename=f"{batch}_{name}",
                purpose="batch_output",
                num_bytes=path.stat().st_size,
                created_s=int(self._clock()),
                expires_s=expires_s,
                interface=record.interface,
            )
            await _until_written(partial(self._files.add, stored, path))
        await self._update(batch, lambda record: transitions.ended(record, self._clock()))
        self._metrics.ended.labels(self._record(batch).status).inc()
        _log.info("batch_ended", batch=batch, tenant=record.tenant, status=self._record(batch).status)

    async def _update(self, batch: str, change: Callable[[BatchRecord], BatchRecord]) -> BatchRecord:
        """Write a change of what the record is then: others may change it while the disk takes nothing."""
        await _until_written(lambda: self._batches.save(change(self._record(batch))))
        return self._record(batch)

    def _record(self, batch: str) -> BatchRecord:
        record = self._batches.get(batch)
        assert record is not None, "a batch that runs is kept"
        return record


async def _until_written(write: Callable[[], None]) -> None:
    while True:
        try:
            return write()
        except OSError as error:
            _log.error("batch_not_written", problem=str(error))
            await asyncio.sleep(DISK_RETRY_S)
