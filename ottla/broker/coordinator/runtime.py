"""The shell around the shards of one coordinator's topic: loads, appends, waits, answers, wakes.

A shard is a pure state machine for one partition of the topic (`outcome.py` says how it works). It
is made and loaded by replay when this broker begins to lead the partition, and thrown away when it
ceases to. Meanwhile:

  * The records of the commands of one turn of the loop, and of all that come while a sync of the
    partition is under way, become one append and share the next sync (group commit).
  * An answer leaves when everything that its command could see is durable: at once if nothing is
    being written, else with the append that was the newest when it was made. So nobody is told what
    a power loss could take back, not even by a question. Only what no record ever says leaves now.
  * If an append fails the shard is thrown away and loaded anew, for it is ahead of its log. The new
    one writes nothing of its own accord when it is loaded: that would be refused, too.

There are no rules here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import ExitStack
from enum import Enum
from functools import partial
from struct import error as StructError
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.coordinator.gathering import Fence, Gathered
from ottla.broker.coordinator.history import History
from ottla.broker.coordinator.loading import Loader, LoadFailed
from ottla.broker.coordinator.outcome import (
    Anew,
    Answer,
    CoordinatorRecord,
    Counted,
    Moment,
    Outcome,
    Reply,
    Work,
)
from ottla.broker.coordinator.placement import partition_for
from ottla.broker.coordinator.record_format import RecordFormat
from ottla.broker.metadata.delta import Delta
from ottla.broker.metadata.image import MetadataImage
from ottla.broker.ports import Clock, Events
from ottla.broker.replication.replicas import Partition, Replicas
from ottla.protocol.errors import ErrorCode, KafkaError

RELOAD_AFTER_S = 5.0
"""A partition that could not be loaded for its disk is tried again so often."""
MS_PER_S = 1000


class Shard(Protocol):
    def apply(self, record: CoordinatorRecord, now_wall_ms: int, producer_id: int = -1) -> None: ...

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None: ...

    def loaded(self, now: Moment) -> Outcome:
        """All records are replayed. It writes none itself."""

    def forget_gone(self, now: Moment) -> Outcome:
        """What it keeps of topics that went while nobody told it goes, too."""

    def unloaded(self, now: Moment) -> Outcome: ...

    def expire(self, now: Moment) -> Outcome: ...

    def topics_deleted(self, names: list[str], now: Moment) -> Outcome: ...

    def next_deadline_ms(self) -> int | None: ...

    @property
    def record_count(self) -> int: ...

    def written_anew(self, now: Moment, log: range) -> Anew | None:
        """What stands for some or all of the offsets of `log`; None if nothing does now."""


S = TypeVar("S", bound=Shard)
Spawn = Callable[[Coroutine[Any, Any, None], str], None]
Refuse = Callable[[Any, ErrorCode], Any]


class RunnerState(Enum):
    """Of one partition that is led here."""

    LOADED = "loaded"
    LOADING = "loading"
    FAILED = "failed"
    """It cannot be loaded, or has just been thrown away."""


class _Append:
    """One append under way, the answers that wait for it, and what counts and what is to be done
    once it is durable."""

    __slots__ = ("answers", "counted", "due")

    def __init__(
        self,
        answers: list[Answer],
        counted: dict[Counted, int],
        due: list[Callable[[], None]],
    ) -> None:
        self.answers = answers
        self.counted = counted
        self.due = due


class Runner(Generic[S]):
    """One shard at work; `shard` is None while it is being loaded, or if it cannot be."""

    def __init__(self, coordinator: Coordinator[S], partition: Partition) -> None:
        self._coordinator = coordinator
        self.now = coordinator.now
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.shard: S | None = None
        self.failure = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self.closed = False
        self.anew_from = 0
        """Where all that the shard held was last written anew (`pruning.py`)."""
        self._gathered: Gathered | None = None  # what no append has taken yet
        self._answers: list[Answer] = []
        self._counted: dict[Counted, int] = {}
        self._due: list[Callable[[], None]] = []
        self._append: _Append | None = None
        self._scheduled = False
        self._was_refused = False  # the last append
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None

    def __repr__(self) -> str:
        state = self.shard if self.shard is not None else self.failure.name
        return f"<Runner {self.partition!r} {state} {self._gathered!r}>"

    @property
    def state(self) -> RunnerState:
        if self.shard is not None:
            return RunnerState.LOADED
        is_loading = self.failure is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return RunnerState.LOADING if is_loading else RunnerState.FAILED

    def fence(self, producer_id: int) -> Fence:
        """How far a producer has come in the partition, with what is on its way there. The log
        would refuse what is older, and the shard be ahead of it: so who writes asks before."""
        producer = self.partition.log.producer_state.producers.get(producer_id)
        fence = Fence.of(producer)
        return fence if self._gathered is None else self._gathered.fence(producer_id, fence)

    def perform(self, outcome: Outcome) -> None:
        """Does what a command of the shard asks for."""
        coordinator, shard = self._coordinator, self.shard
        if outcome.records or outcome.marker is not None:
            try:
                self._gather(outcome)
            except (ValueError, StructError) as error:
                self._unwritable(outcome, error)
                return
        if outcome.told:
            coordinator.history.add(outcome.told, outcome.now)
        if self._gathered is not None:
            self._answers += outcome.answers
            self._due += outcome.due
        elif self._append is not None:
            self._append.answers += outcome.answers
            self._append.due += outcome.due
        else:
            for answer in outcome.answers:
                answer.leave()
            for what in outcome.due:
                what()
        for answer in outcome.answers_now:
            answer.leave()
        for work in outcome.work:
            coordinator.spawn(self._work(work, shard), f"work-{self.partition.index}")
        self._arm()

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being written: what can be seen is durable."""
        return self._gathered is None and self._append is None

    def answer(self, reply: Reply, response: Any) -> None:
        """Answers a question, which changes nothing, when what it could see is durable."""
        if self._gathered is not None:
            self._answers.append(Answer(reply, response))
        elif self._append is not None:
            self._append.answers.append(Answer(reply, response))
        else:
            reply.complete(response)

    def close(self) -> None:
        """This broker does not lead the partition any more, or stops."""
        self.closed = True
        self._throw_away(ErrorCode.NOT_COORDINATOR)

    def start(self) -> None:
        """Loads: at once if there is little, else beside everything else."""
        self.shard = None
        self.failure = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        coordinator = self._coordinator
        shard = coordinator.make_shard()
        loader = Loader(self.partition.log, shard, coordinator.clock, coordinator.record_format)
        if loader.is_short:
            try:
                loader.load_now()
            except LoadFailed as error:
                self._not_loaded(error)
            else:
                self._loaded(shard, loader)
        else:
            coordinator.spawn(self._load(shard, loader), f"load-{self.partition.index}")

    # what the partition reports

    def committed(self, part: _Append) -> None:
        if self._append is part:
            self._append = None
            if self._gathered is not None:
                self._append_gathered()
        _add(self._coordinator.counted, part.counted)
        _do_each([*(answer.leave for answer in part.answers), *part.due])

    def failed(self, part: _Append, code: ErrorCode) -> None:
        if not self.partition.online:
            self._throw_away(ErrorCode.NOT_COORDINATOR)
        elif self._append is part:
            # Only late: what is gathered goes behind it, and waits for the same disk.
            self._append = None
            self._append_gathered()
            if self._append is None:
                # Nothing is: but what was written is still not durable, and can be seen.
                last_offset = self.partition.log.log_end_offset - 1
                self._await(_Append([], part.counted, part.due), last_offset)
            else:
                _add(self._append.counted, part.counted)
                self._append.due += part.due
        answers, part.answers = part.answers, []
        self._refuse(answers, code)

    # inside

    def _gather(self, outcome: Outcome) -> None:
        """What it has written goes with the next append."""
        coordinator = self._coordinator
        gathered = self._gathered
        if gathered is None:
            gathered = Gathered(coordinator.record_format)
        gathered.add(outcome)
        self._gathered = gathered
        _add(self._counted, outcome.counted)
        if self._append is None and not self._scheduled:
            self._scheduled = True
            # When the requests of this turn are through.
            coordinator.replicas.append_last(self._append_gathered)

    async def _load(self, shard: S, loader: Loader) -> None:
        try:
            await loader.load(self._coordinator.workers, lambda: self.closed)
        except LoadFailed as error:
            self._not_loaded(error)
        else:
            if not self.closed:
                self._loaded(shard, loader)

    async def _work(self, work: Work, shard: S | None) -> None:
        """`shard` is the one that has asked for it."""
        result = await self._coordinator.loop.run_in_executor(self._coordinator.workers, work.run)
        # Another shard has not asked for it, and asks itself when it needs it.
        if self.shard is shard and shard is not None:
            self.perform(work.done(result, self.now()))

    def _loaded(self, shard: S, loader: Loader) -> None:
        coordinator = self._coordinator
        self.shard = shard
        if loader.records:
            # At a start all are loaded; what is unknown in one is worth a line.
            tell = coordinator.events.info if loader.unknown_types else coordinator.events.debug
            tell(
                "coordinator_loaded",
                topic=self.partition.topic,
                partition=self.partition.index,
                records=loader.records,
                unknown_types=loader.unknown_types,
            )
        if self.partition.log.high_watermark < self.partition.log.log_end_offset:
            self._await(_Append([], {}, []), self.partition.log.log_end_offset - 1)
        now = coordinator.now()
        self.perform(shard.loaded(now))
        # Where this has no room it is for later: refused, it would have the shard loaded again.
        has_room = not self._was_refused and not coordinator.replicas.is_spent(self.partition)
        if has_room and self.shard is shard:
            self.perform(shard.forget_gone(now))

    def _not_loaded(self, error: LoadFailed) -> None:
        self.failure = ErrorCode.NOT_COORDINATOR
        # A disk that is full, or too few descriptors, may pass; what is unreadable will not.
        may_pass = isinstance(error.__cause__, OSError)
        directory = self.partition.log.directory
        self._coordinator.events.error(
            "coordinator_not_loaded",
            topic=self.partition.topic,
            partition=self.partition.index,
            error=str(error),
            remedy=f"it is tried again in {RELOAD_AFTER_S:g} s"
            if may_pass
            else f"stop the broker; `ottla log verify {directory}` says what is damaged, and"
            f" `ottla log repair {directory}` takes it out and keeps its bytes",
        )
        if may_pass:
            self._coordinator.loop.call_later(RELOAD_AFTER_S, self._start_if_lost)

    def _start_if_lost(self) -> None:
        if not self.closed and self.shard is None and self.failure is ErrorCode.NOT_COORDINATOR:
            self.start()

    def _append_gathered(self) -> None:
        self._scheduled = False
        if self.closed or self._gathered is None or self._append is not None:
            return
        # Its log may be on its way to another log dir: then all appends wait in their order.
        self._scheduled = self._coordinator.replicas.in_turn(self.partition, self._append_now)
        if not self._scheduled:
            self._append_now()

    def _append_now(self) -> None:
        self._scheduled = False
        gathered = self._gathered
        if self.closed or gathered is None or self._append is not None:
            return
        self._gathered = None
        part = _Append(self._answers, self._counted, self._due)
        self._answers, self._counted, self._due = [], {}, []
        replicas = self._coordinator.replicas
        last_offset = -1
        try:
            for batch in gathered.batches():
                result = replicas.append_internal(self.partition, memoryview(batch))
                last_offset = result.last_offset
        except KafkaError as error:
            # Whatever the log has against one of them, the others are to ask again.
            self._answers = part.answers
            self._was_refused = True
            self._start_again(error)
            return
        self._was_refused = False
        self._await(part, last_offset)

    def _await(self, part: _Append, last_offset: int) -> None:
        if self.partition.log.high_watermark > last_offset:
            self.committed(part)
            return
        self._append = part
        self._coordinator.replicas.await_commit(
            self.partition,
            last_offset=last_offset,
            timeout_ms=self._coordinator.commit_timeout_ms(),
            listener=self,
            part=part,
        )

    def _unwritable(self, outcome: Outcome, error: Exception) -> None:
        """A record has no room for what a command has brought about. Who asked for it is not to
        ask for the same again, which would be the end of the next shard, too."""
        try:
            self._refuse(outcome.answers + outcome.answers_now, ErrorCode.UNKNOWN_SERVER_ERROR)
        finally:
            self._start_again(error)

    def _start_again(self, error: Exception) -> None:
        """The shard knows what its log does not."""
        self._coordinator.events.warning(
            "coordinator_append_failed",
            topic=self.partition.topic,
            partition=self.partition.index,
            error=str(error),
        )
        try:
            self._throw_away(ErrorCode.NOT_COORDINATOR)
        finally:
            if self.partition.online:
                self.start()

    def _throw_away(self, code: ErrorCode) -> None:
        shard, self.shard = self.shard, None
        self.failure = code
        self._gathered = None
        self._counted.clear()
        self._due = []
        answers, self._answers = self._answers, []
        if self._append is not None:
            answers += self._append.answers
            self._append.answers = []
            self._append.due = []
            self._append = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._timer_ms = None
        try:
            self._refuse(answers, ErrorCode.NOT_COORDINATOR)
        finally:
            if shard is not None:
                parting = shard.unloaded(self._coordinator.now()).answers
                _do_each([answer.leave for answer in parting])

    def _refuse(self, answers: list[Answer], code: ErrorCode) -> None:
        def refuse(answer: Answer) -> None:
            answer.reply.complete(self._coordinator.refuse(answer.response, code))

        _do_each([partial(refuse, answer) for answer in answers])

    def _arm(self) -> None:
        if self.shard is None:
            return  # what an answer has set off took its log dir offline
        next_ms = self.shard.next_deadline_ms()
        if next_ms is None or (self._timer_ms is not None and self._timer_ms <= next_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        coordinator = self._coordinator
        delay_ms = max(next_ms - coordinator.clock.monotonic_ms(), 0)
        self._timer_ms = next_ms
        self._timer = coordinator.loop.call_later(delay_ms / MS_PER_S, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._timer_ms = None
        assert self.shard is not None
        self.perform(self.shard.expire(self._coordinator.now()))


class Coordinator(Generic[S]):
    """The shards of one topic that this broker leads. Everything runs on the loop.

    `refuse` makes an answer into one that says only an error; `commit_timeout_ms` is asked at each
    append; `workers` read large logs.
    """

    def __init__(
        self,
        topic: str,
        record_format: RecordFormat,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        events: Events,
        history: History,
        replicas: Replicas,
        workers: Executor,
        spawn: Spawn,
        make_shard: Callable[[], S],
        refuse: Refuse,
        commit_timeout_ms: Callable[[], int],
    ) -> None:
        self.topic = topic
        self.record_format = record_format
        self.loop = loop
        self.clock = clock
        self.events = events
        self.history = history
        self.replicas = replicas
        self.workers = workers
        self.spawn = spawn
        self.make_shard = make_shard
        self.refuse = refuse
        self.commit_timeout_ms = commit_timeout_ms
        self.counted: Counter[Counted] = Counter()
        """Since the broker started: what was written, once it is durable."""
        self._runners: dict[int, Runner[S]] = {}
        self._partition_count = 0

    def __repr__(self) -> str:
        return f"<Coordinator {self.topic} {len(self._runners)} of {self._partition_count}>"

    def now(self) -> Moment:
        return Moment(self.clock.monotonic_ms(), self.clock.wall_ms())

    def runner(self, key: str) -> tuple[Runner[S], S]:
        """Who coordinates this key. Raises NOT_COORDINATOR, or LOAD_IN_PROGRESS, if it is not here
        or not yet."""
        count = self._partition_count
        if not count:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return self.runner_of(partition_for(key, count))

    def runner_with_room(self, key: str) -> tuple[Runner[S], S]:
        """The same for who may as well ask again: NOT_COORDINATOR where what the shard would write
        has no room, for a shard whose append is refused is loaded anew."""
        runner, shard = self.runner(key)
        if self.replicas.is_spent(runner.partition):
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return runner, shard

    def runner_of(self, index: int) -> tuple[Runner[S], S]:
        """The same of one partition of the topic."""
        runner = self._runners.get(index)
        if runner is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if runner.shard is None:
            raise KafkaError(runner.failure)
        return runner, runner.shard

    def shards(self) -> list[S]:
        """All that are loaded here; LOAD_IN_PROGRESS while one is not."""
        found: list[S] = []
        for runner in self._runners.values():
            if runner.shard is not None:
                found.append(runner.shard)
            elif runner.failure is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise KafkaError(runner.failure)
        return found

    def loaded(self) -> list[tuple[Runner[S], S]]:
        """Those that are at work now."""
        runners = self._runners.values()
        return [(runner, runner.shard) for runner in runners if runner.shard is not None]

    def states(self) -> Counter[RunnerState]:
        """How many of the partitions that are led here are in which state."""
        return Counter(runner.state for runner in self._runners.values())

    def perform_all(self, command: Callable[[S], Outcome]) -> None:
        """Has one thing done by every shard that is loaded."""
        for runner, shard in self.loaded():
            runner.perform(command(shard))

    def published(self, delta: Delta, image: MetadataImage) -> None:
        """A change of the metadata is in force, and what it says of leaders is done."""
        own = image.topics.by_name.get(self.topic)
        deleted = [topic.name for topic in delta.deleted_topics.values()]
        if self.topic in deleted or (own and own.topic_id in delta.changed_partitions):
            self.take_up(image)
        if deleted:
            now = self.now()
            self.perform_all(lambda shard: shard.topics_deleted(deleted, now))

    def take_up(self, image: MetadataImage) -> None:
        """Makes the shards those of the partitions that are led now."""
        topic = image.topics.by_name.get(self.topic)
        self._partition_count = 0 if topic is None else len(topic.partitions)
        led: dict[int, Partition] = {}
        for index in range(self._partition_count):
            partition = self.replicas.get(self.topic, index)
            if partition is not None:
                led[index] = partition
        for index, runner in list(self._runners.items()):
            partition = led.get(index)
            if partition is not runner.partition or partition.leader_epoch != runner.leader_epoch:
                del self._runners[index]
                runner.close()
        for index, partition in led.items():
            if index not in self._runners:
                runner = self._runners[index] = Runner(self, partition)
                runner.start()

    def close(self) -> None:
        """Sends everybody away who waits: the broker stops."""
        runners, self._runners = self._runners, {}
        with ExitStack() as each:  # whatever goes wrong with one of them
            for runner in runners.values():
                each.callback(runner.close)


def _do_each(acts: list[Callable[[], None]]) -> None:
    """In their order, whatever goes wrong with one of them; that is raised in the end."""
    left = iter(acts)
    try:
        for act in left:
            act()
    finally:
        with ExitStack() as each:
            for act in reversed(list(left)):
                each.callback(act)


def _add(counted: dict[Counted, int], more: dict[Counted, int]) -> None:
    for what, times in more.items():
        counted[what] = counted.get(what, 0) + times
