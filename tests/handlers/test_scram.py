"""DescribeUserScramCredentials tells who has credentials, and no secret."""

from __future__ import annotations

from ottla.protocol.messages.metadata_records import UserScramCredentialRecord
from ottla.protocol.messages.scram import DescribeUserScramCredentialsRequest
from tests.handlers.rooms import House

User = DescribeUserScramCredentialsRequest.UserName
SHA_256, SHA_512 = 1, 2


async def _asked(house: House, *names: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest([User(name) for name in names])
    answer = await house.ask(request, 0)
    assert answer.error_code == 0
    return [
        (
            one.user,
            one.error_code,
            [(info.mechanism, info.iterations) for info in one.credential_infos],
        )
        for one in answer.results
    ]


async def test_who_has_credentials(house: House) -> None:
    assert await _asked(house) == []
    records = [
        UserScramCredentialRecord("alice", SHA_256, b"salt", b"stored", b"server", 4096),
        UserScramCredentialRecord("alice", SHA_512, b"salt", b"stored", b"server", 8192),
        UserScramCredentialRecord("bob", SHA_256, b"salt", b"stored", b"server", 4097),
    ]
    await house.rooms.quorum.submit(lambda image: (list(records), None))

    alice = ("alice", 0, [(SHA_256, 4096), (SHA_512, 8192)])
    assert await _asked(house) == [alice, ("bob", 0, [(SHA_256, 4097)])]
    assert await _asked(house, "alice") == [alice]


async def test_who_has_none_and_who_is_named_twice(house: House) -> None:
    assert await _asked(house, "x", "x", "") == [("x", 92, []), ("", 91, [])]
