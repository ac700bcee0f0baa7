"""Brokers as processes: Ottla, and Apache Kafka beside it, started and ended the same way.

A server keeps its directory and port over restarts, so that what it left is what it finds.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from tests.peers import jars, process_tree

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
# 143 is what a JVM answers to SIGTERM; -15 would be a process that had no handler for it.
CLEAN_STATUSES = (0, 143)
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)


_running: set[Server] = set()


def _end_by_signal(number: int, frame: FrameType | None) -> None:
    """Ends this program as if it had come to its end, so that everything is cleaned up."""
    raise SystemExit(128 + number)


@atexit.register
def _end_all() -> None:
    for server in list(_running):
        server.close()


def free_port() -> int:
    """A port that was free a moment ago, with its successor, for a controller listener."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def answers(port: int) -> bool:
    """Whether somebody on the port answers an ApiVersions request."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
            connection.settimeout(2.0)
            connection.sendall(API_VERSIONS)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


class ServerEnded(RuntimeError):
    """A server that was to run has ended by itself."""


class Server:
    """One broker process at a time on one directory and port.

    `name` is what tables call it. Subclasses say how it is started.
    """

    name = ""

    def __init__(self, directory: Path, port: int | None = None, **properties: object) -> None:
        self.directory = directory
        self.port = port or free_port()
        self.properties = {key.replace("_", "."): str(v) for key, v in properties.items()}
        self.output = directory / "output.txt"
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def command(self) -> list[str]:
        """The command line that runs the broker in the foreground."""
        raise NotImplementedError

    def spawn(self) -> None:
        """Starts the process and waits for nothing."""
        assert self.process is None
        command = self.command()
        if threading.current_thread() is threading.main_thread():
            # It has a session of its own: who ends this program by `kill` would leave it running.
            signal.signal(signal.SIGTERM, _end_by_signal)
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        _running.add(self)

    def start(self) -> float:
        """Starts it; returns the seconds until it answered ApiVersions."""
        started = time.perf_counter()
        self.spawn()
        assert self.process is not None
        while not answers(self.port):
            elapsed = time.perf_counter() - started
            if self.process.poll() is not None or elapsed > READY_SECONDS_MAX:
                self.kill()
                raise RuntimeError(f"{self.name} did not start:\n{self.tail()}")
            time.sleep(0.002)
        return time.perf_counter() - started

    def stop(self) -> float:
        """Ends it in good order (SIGTERM); returns the seconds that took."""
        assert self.process is not None
        started = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        status, self.process = self.process.returncode, None
        _running.discard(self)
        if status not in CLEAN_STATUSES:
            raise RuntimeError(f"{self.name} ended with status {status}:\n{self.tail()}")
        return time.perf_counter() - started

    def kill(self) -> None:
        """kill -9 of the broker and everything it started."""
        assert self.process is not None
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None
        _running.discard(self)

    def close(self) -> None:
        """Ends it if it still runs, however."""
        if self.process is not None:
            self.kill()

    def tail(self) -> str:
        """The end of what it printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")[-3000:]

    def cpu_seconds(self) -> float:
        return process_tree.cpu_seconds(self._living())

    def resident_mb(self) -> float:
        return process_tree.resident_mb(self._living())

    def _living(self) -> int:
        """The process id; what is gone takes nothing, which would be its best figure."""
        assert self.process is not None
        status = self.process.poll()
        if status is not None:
            raise ServerEnded(f"{self.name} has ended with status {status}:\n{self.tail()}")
        return self.process.pid


class Ottla(Server):
    """This checkout's broker, run by the Python that runs us."""

    name = "Ottla"

    def command(self) -> list[str]:
        settings = {
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data),
            # Several brokers may run on this machine at once.
            "ottla.telemetry.port": "0",
            **self.properties,
        }
        command = [str(Path(sys.executable).with_name("ottla")), "serve"]
        for key, value in settings.items():
            command += ["--override", f"{key}={value}"]
        return command


class ApacheKafka(Server):
    """Apache Kafka as one combined broker and controller, its defaults but for replication of 1."""

    name = "Kafka"
    heap = "1G"
    features: tuple[str, ...] = ()
    """Levels other than the newest to format with, as "group.version=0"."""
    # The flags of Kafka's own kafka-server-start.sh.
    collector = (
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
    )

    def _write_properties(self) -> Path:
        controller = f"127.0.0.1:{self.port + 1}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **self.properties,
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _format(self) -> None:
        """Makes an empty directory a Kafka directory, as its quick start does."""
        storage = jars.java("kafka.tools.StorageTool", "format", "--standalone")
        storage += ["-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._write_properties())]
        for feature in self.features:
            storage += ["--feature", feature]
        subprocess.run(storage, check=True, stdout=subprocess.DEVNULL)

    def command(self) -> list[str]:
        properties = self._write_properties()
        if not (self.data / "meta.properties").exists():
            self._format()
        java, *arguments = jars.java("kafka.Kafka", str(properties))
        return [java, f"-Xms{self.heap}", f"-Xmx{self.heap}", *self.collector, *arguments]
