"""100 MB of this machine's own text through one partition, line by line, with kcat.

    make text
    make text ARGS="--megabytes 300"
    make text ARGS="--kafka"        the same through Apache Kafka

What comes out has the SHA-256 of what went in, before and after a kill -9 of the broker.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from tests.peers import topics
from tests.peers.servers import ApacheKafka, Ottla, Server
from tests.text.gather import gather

TOPIC = "text"
CHUNK_BYTES = 1 << 20


def _sized(size: int, seconds: float) -> str:
    return f"{seconds:.1f} s, {size / 1e6 / seconds:.0f} MB/s"


def write(server: Server, source: Path) -> None:
    """One record a line."""
    command = ["kcat", "-P", "-b", server.bootstrap, "-t", TOPIC, "-p", "0"]
    with source.open("rb") as lines:
        subprocess.run(command, stdin=lines, check=True)


def read(server: Server) -> str:
    """The SHA-256 of every line that comes out."""
    command = ["kcat", "-C", "-q", "-e", "-b", server.bootstrap, "-t", TOPIC, "-p", "0"]
    command += ["-o", "0"]
    digest = hashlib.sha256()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as kcat:
        assert kcat.stdout is not None
        while chunk := kcat.stdout.read(CHUNK_BYTES):
            digest.update(chunk)
    if kcat.returncode:
        raise RuntimeError(f"kcat ended with status {kcat.returncode}")
    return digest.hexdigest()


def compare(when: str, server: Server, size: int, wanted: str) -> None:
    started = time.perf_counter()
    found = read(server)
    spent = _sized(size, time.perf_counter() - started)
    if found != wanted:
        raise RuntimeError(f"{when}: sha256 {found}, wanted {wanted}")
    print(f"read {when}: same sha256, {spent}")


def there_and_back(server: Server, source: Path, size: int, wanted: str) -> None:
    """Raises RuntimeError when what comes out is not what went in."""
    print(f"{server.name} ready in {server.start():.2f} s")
    topics.create(server.bootstrap, {TOPIC: 1})
    started = time.perf_counter()
    write(server, source)
    print(f"written: {_sized(size, time.perf_counter() - started)}")
    compare("before kill -9", server, size, wanted)
    server.kill()
    print(f"kill -9, ready again in {server.start():.2f} s")
    compare("after kill -9", server, size, wanted)
    server.stop()


@click.command()
@click.option("--megabytes", default=100, show_default=True)
@click.option("--kafka", is_flag=True, help="Use Apache Kafka instead.")
def main(megabytes: int, kafka: bool) -> None:
    """Send the text through a broker and back."""
    if shutil.which("kcat") is None:
        print("skipped: kcat is not on this machine")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
    folder = Path(tempfile.mkdtemp(prefix="ottla-text-"))
    server: Server = ApacheKafka(folder / "broker") if kafka else Ottla(folder / "broker")
    try:
        size, lines, wanted = gather(folder / "lines.txt", megabytes * 1_000_000)
        print(f"gathered {size} bytes in {lines} lines, sha256 {wanted}")
        there_and_back(server, folder / "lines.txt", size, wanted)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        print(f"FAILED {error}")
        sys.exit(1)
    finally:
        server.close()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
