"""A broker in this process: real port, real wire, real files, ready in milliseconds.

    async with Broker() as broker:                    # on the running loop
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)

    with BrokerThread() as broker:                    # on a loop of its own, for blocking clients
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

Without `data_dir` the data lives in a temporary directory, made at the start, that goes with the
broker. Settings are Kafka's: `Broker(config={"num.partitions": 3})`, with a list where Kafka's
value is one: `{"log.cleanup.policy": ["compact", "delete"]}`; what they say of listeners and log
dirs goes before `port` and `data_dir`. Several brokers run side by side. One that was stopped
may start again: within its `with` block at the same port and with its data, for a client that is
to outlive that, and else with its data if it has a directory of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from ottla.broker.broker import Broker as RunningBroker
from ottla.broker.telemetry.logs import quiet_logger
from ottla.config.broker import BrokerConfig
from ottla.config.load import load

T = TypeVar("T")
Setting = str | int | float | bool | list[str] | tuple[str, ...]


HEARTBEAT_MS = 500
PORT_MAX = 65535
NOT_STARTED = "the broker is not started: enter its `with` block, or call its start()"
BLOCKING = "a Broker runs on a loop: `async with Broker()`; `with BrokerThread()` brings its own"
AWAITING = "`async with BrokerThread()` would block the loop: write `async with Broker()`"
STARTED = "the broker is started already: stop it first, or make another one"


_temporary: dict[str, int] = {}
"""The directories of brokers that nobody has stopped yet, and the processes that made them."""


def _remove_temporary() -> None:
    """Of this process: one that was forked leaves its parent's alone."""
    for path, process in tuple(_temporary.items()):  # its threads may still run
        if process == os.getpid():
            shutil.rmtree(path, ignore_errors=True)


atexit.register(_remove_temporary)


class Broker:
    """`async with Broker(data_dir=..., port=0) as broker`. If the broker fails while it runs, the
    context manager raises what ended it."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        config: Mapping[str, Setting] | None = None,
    ) -> None:
        # From the start in a block to its end the temporary directory stays, and the port.
        self._in_block = False
        self._kept: dict[str, str] = {}
        self._names_listeners = "listeners" in (config or {})
        self._data_dir = None if data_dir is None else _checked_path(data_dir)
        _check_port(port)
        self._settings: dict[str, Setting] = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "ottla.telemetry.port": -1,
            # A test has all its members at once; Kafka's own tests set this, too.
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.assignment.interval.ms": 0,
            # By its heartbeats a member of KIP-848 hears of the others: Kafka's 5 s are long here.
            "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
            "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
            **(config or {}),
        }
        self._names_dirs = not self._settings.keys().isdisjoint(("log.dir", "log.dirs"))
        loaded = self._loaded()  # what is wrong is told here, not at the start
        if self._names_dirs:
            self._data_dir = loaded.data_dirs[0]
        self._is_temporary = self._data_dir is None
        self._running: RunningBroker | None = None
        self._process: int | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for a client's `bootstrap.servers`."""
        if self._running is None:
            raise RuntimeError(NOT_STARTED)
        return self._running.bootstrap_servers

    @property
    def running(self) -> RunningBroker:
        """The broker itself, for tests that look inside."""
        if self._running is None:
            raise RuntimeError(NOT_STARTED)
        return self._running

    @property
    def data_dir(self) -> str:
        """Where the data lies, or the first of several. A temporary directory has its name from the
        start on, and is gone after the stop, or the block that it was started by."""
        if self._data_dir is None:
            raise RuntimeError(NOT_STARTED)
        return self._data_dir

    async def start(self) -> None:
        if self._running is not None:
            raise RuntimeError(STARTED)
        self._process = os.getpid()
        if self._is_temporary and self._data_dir not in _temporary:
            self._data_dir = tempfile.mkdtemp(prefix="ottla-")
            _temporary[self._data_dir] = os.getpid()
        try:
            self._running = RunningBroker(self._loaded(), events=quiet_logger())
            await self._running.start()
        except BaseException as error:
            self._end()
            is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if is_taken and not self._kept and "cannot listen on" in str(error):
                error.add_note("port=0, the default, takes a free one.")
            raise

    async def stop(self) -> None:
        """Stops cleanly; raises what ended the broker if it had failed. May be called by several
        at once. In a process that was forked meanwhile it does nothing, as the end of the block."""
        running = self._running
        if self._is_of_another_process:
            return
        try:
            if running is not None:
                await running.stop()
        finally:
            if self._running is running:  # and not one that was started since
                self._end()

    @property
    def _is_of_another_process(self) -> bool:
        """Whether a process that was forked has it from the one that started it."""
        return self._process not in (None, os.getpid())

    def _loaded(self) -> BrokerConfig:
        has_none = self._names_dirs or self._data_dir is None
        where = {} if has_none else {"log.dirs": self._data_dir}
        return load(overrides={**where, **self._settings, **self._kept}, environ={}).config

    def _stay(self) -> None:
        """It has started, and comes back where it is now until `_leave`."""
        self._in_block = True
        if not self._names_listeners:
            (listener,) = self.running.listeners
            self._kept = {"listeners": str(listener)}

    def _leave(self) -> None:
        """The next stop is the last, or the one before was."""
        if self._is_of_another_process:
            return
        self._in_block = False
        self._kept = {}
        if self._running is None:
            self._end()

    def _end(self) -> None:
        self._running = None
        if self._is_temporary and not self._in_block and self._data_dir is not None:
            _temporary.pop(self._data_dir, None)
            shutil.rmtree(self._data_dir, ignore_errors=True)

    def __enter__(self) -> NoReturn:
        raise TypeError(BLOCKING)

    def __exit__(self, *_: object) -> None:
        """Python asks for both before it enters."""

    async def __aenter__(self) -> Broker:
        await self.start()
        self._stay()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()
        await self.stop()


class _LoopThread:
    """A loop that runs in a thread of its own until `end`."""

    def __init__(self, use_uvloop: bool | None) -> None:
        self._runner = asyncio.Runner(loop_factory=partial(_new_loop, use_uvloop))
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="ottla-broker", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it on the loop. Whoever is interrupted meanwhile, by Ctrl-C or a test's timeout,
        however often, goes when that has ended it."""
        ended: Future[asyncio.Task[T]] = Future()
        begun: list[asyncio.Task[T]] = []

        def begin() -> None:
            task = self._loop.create_task(work)
            task.add_done_callback(ended.set_result)
            begun.append(task)

        def cancel() -> None:
            for task in begun:
                task.cancel()

        self._loop.call_soon_threadsafe(begin)
        return self._ended(ended, cancel).result()

    def _ended(self, ended: Future[asyncio.Task[T]], cancel: Callable[[], None]) -> asyncio.Task[T]:
        try:
            return ended.result()
        except BaseException:
            self._loop.call_soon_threadsafe(cancel)
            self._ended(ended, cancel)
            raise

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with self._runner:  # which ends what tasks are left
            self._loop.run_forever()


class BrokerThread:
    """The same broker on a loop in a thread of its own, for code that blocks.

    `use_uvloop=None` takes uvloop if it is installed.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        config: Mapping[str, Setting] | None = None,
        *,
        use_uvloop: bool | None = None,
    ) -> None:
        self._broker = Broker(data_dir, port, config)
        self._use_uvloop = use_uvloop
        self._thread: _LoopThread | None = None

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    @property
    def data_dir(self) -> str:
        return self._broker.data_dir

    @property
    def running(self) -> RunningBroker:
        """The broker itself, for tests that look inside; its methods belong to its own loop."""
        return self._broker.running

    def start(self) -> None:
        if self._thread is not None:
            raise RuntimeError(STARTED)
        try:
            self._thread = _LoopThread(self._use_uvloop)
            self.call(self._broker.start())
        except BaseException:
            try:
                if self._broker._running is not None:  # it had started when that was to end it
                    self.call(self._broker.stop())
            finally:
                self._end()
            raise

    def stop(self) -> None:
        """Stops cleanly; raises what ended the broker if it had failed."""
        if self._thread is None or self._broker._is_of_another_process:
            return
        try:
            self.call(self._broker.stop())
        finally:
            self._end()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the broker's loop and waits for it."""
        if self._thread is None:
            raise RuntimeError(NOT_STARTED)
        return self._thread.call(work)

    async def __aenter__(self) -> NoReturn:
        raise TypeError(AWAITING)

    async def __aexit__(self, *_: object) -> None:
        """Python asks for both before it enters."""

    def __enter__(self) -> BrokerThread:
        self.start()
        self._broker._stay()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._broker._leave()
        self.stop()

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()


def _checked_path(data_dir: str | os.PathLike[str]) -> str:
    if isinstance(data_dir, Mapping):
        raise TypeError("data_dir is a path; settings go by config={...}")
    path = os.fspath(data_dir)
    if "," in path or path != path.strip():
        raise ValueError(
            f"data_dir={path!r}: log.dirs is a list, so no name in it has a comma in it, or a blank"
            " at its ends"
        )
    return path


def _check_port(port: object) -> None:
    allowed = f"0, for any that is free, to {PORT_MAX}"
    if not isinstance(port, int):
        raise TypeError(f"port={port!r}: a whole number, {allowed}")
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"port={port}: {allowed}")


def _new_loop(use_uvloop: bool | None) -> asyncio.AbstractEventLoop:
    if use_uvloop is not False:
        try:
            import uvloop
        except ImportError:
            if use_uvloop:
                raise
        else:
            return uvloop.new_event_loop()
    return asyncio.SelectorEventLoop()
