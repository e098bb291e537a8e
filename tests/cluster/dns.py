"""DNS server for the names of Services, in place of CoreDNS, which is not a Go command.

It asks the API server for addresses, and answers address queries (A) over UDP. It knows no other
names, as nothing outside is reachable from a test's cluster.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.cluster.api import Refused
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from tests.cluster.api import Api

__all__ = ["Dns", "reply", "service_addresses"]

DOMAIN = "svc.cluster.local"
_HEAD, _A = 12, 1
_IS_ANSWER, _NO_SUCH_NAME = 0x8580, 3
_TTL_S = 5


def reply(query: bytes, addresses: Callable[[str], list[str] | None]) -> bytes:
    """Return the DNS response to a query.

    Args:
        query: DNS message with one question.
        addresses: returns the addresses of a name, or None if there is no such name.
    """
    labels, at = list[str](), _HEAD
    while size := query[at]:
        labels.append(query[at + 1 : at + 1 + size].decode().lower())
        at += 1 + size
    (kind,) = struct.unpack_from(">H", query, at + 1)
    known = addresses(".".join(labels))
    found = known if known and kind == _A else []
    flags = _IS_ANSWER | (_NO_SUCH_NAME if known is None else 0)
    head = query[:2] + struct.pack(">HHHHH", flags, 1, len(found), 0, 0)
    record = b"\xc0\x0c" + struct.pack(">HHIH", _A, 1, _TTL_S, 4)  # of the name in the question
    records = (record + socket.inet_aton(each) for each in found)
    return head + query[_HEAD : at + 5] + b"".join(records)


def service_addresses(api: Api, name: str) -> list[str] | None:
    """Return the cluster IP of ``SERVICE.NAMESPACE.svc.cluster.local``, or its pods' IPs.

    None if there is no such Service.
    """
    service, _, rest = name.partition(".")
    namespace, _, domain = rest.partition(".")
    if domain != DOMAIN:
        return None
    try:
        found = api.get(f"/api/v1/namespaces/{namespace}/services/{service}")
    except Refused:
        return None
    if (own := found["spec"]["clusterIP"]) != "None":
        return [own]
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = api.get(path, labelSelector=f"kubernetes.io/service-name={service}")["items"]
    ends = [end for each in slices for end in each.get("endpoints") or ()]
    return [ip for end in ends if end["conditions"].get("ready") for ip in end["addresses"]]


class Dns:
    """DNS server that runs during its context.

    Args:
        api: client for the cluster's API server.
        host: host to listen on, at the DNS port.
    """

    def __init__(self, api: Api, host: str) -> None:
        self._api = api
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((host, 53))
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # it is not connected, or the client has left
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(HANG_S)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            query, sender = self._socket.recvfrom(4096)
            if not query:
                return
            answer = reply(query, lambda name: service_addresses(self._api, name))
            self._socket.sendto(answer, sender)
