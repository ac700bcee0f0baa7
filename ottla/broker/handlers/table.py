"""Which function serves which API: one explicit table, built once per broker.

An API is here whole, with Kafka 4.3.1's version range, or it is not in ApiVersions at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from ottla.protocol.api import Api
from ottla.protocol.codec import decoder
from ottla.protocol.error_codes import CountErrors, ErrorCounts, error_counter
from ottla.protocol.errors import ErrorCode
from ottla.protocol.frame import ResponseEncoder, response_encoder

Handler = Callable[[Any, Any, int], Any]

LATENCY_BUCKETS_S: Final[tuple[float, ...]] = (
    0.0001,
    0.0005,
    0.001,
    0.005,
    0.01,
    0.05,
    0.1,
    0.5,
    1.0,
    5.0,
)


class Decoders(dict[int, Any]):
    """Version -> compiled decoder of one request, compiled on first use (start-up time); None for a
    version that is not served."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self._api = api

    def __missing__(self, version: int) -> Any:
        if not self._api.min_version <= version <= self._api.max_version:
            return None
        compiled = decoder(self._api.request, version)
        self[version] = compiled
        return compiled


class Encoders(dict[int, ResponseEncoder]):
    """Version -> compiled encoder of one response with its frame, compiled on first use."""

    def __init__(self, api: Api) -> None:
        super().__init__()
        self._api = api

    def __missing__(self, version: int) -> ResponseEncoder:
        compiled = response_encoder(self._api, version)
        self[version] = compiled
        return compiled


class Entry:
    """One served API, and what its requests cost."""

    __slots__ = (
        "api",
        "buckets",
        "count_errors",
        "decoders",
        "encoders",
        "errors",
        "handle",
        "response",
        "seconds",
    )

    def __init__(self, api: Api, handle: Handler) -> None:
        self.api = api
        self.handle = handle
        self.response = api.response
        self.decoders = Decoders(api)
        self.encoders = Encoders(api)
        self.seconds = 0.0
        self.buckets = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.errors: ErrorCounts = defaultdict(int)
        """Of all answers, as `count_errors(response, errors)` adds them."""
        self.count_errors: CountErrors = self._compile_and_count

    def observe(self, seconds: float) -> None:
        """Counts one answered request; `seconds` from where it was let pass to its answer."""
        self.seconds += seconds
        place = 0
        for bound in LATENCY_BUCKETS_S:  # nearly all end at the first
            if seconds <= bound:
                break
            place += 1
        self.buckets[place] += 1

    @property
    def requests(self) -> int:
        """How many requests were counted."""
        return sum(self.buckets)

    def _compile_and_count(self, response: Any, errors: ErrorCounts) -> None:
        """With the first answer: compiled for each API at the start, it would be a delay."""
        self.count_errors = error_counter(self.response)
        self.count_errors(response, errors)

    def error_response(self, code: ErrorCode, version: int) -> Any | None:
        """An answer that says only `code`, for a response with a place for it at its top."""
        response = self.response()
        if not hasattr(response, "error_code"):
            return None
        response.error_code = int(code)
        try:
            self.encoders[version](0, response)
        except ValueError:  # not in this version
            return None
        return response
