"""The servers under test, one file each."""

from __future__ import annotations

from benchmarks.servers.bentoml import BENTOML
from benchmarks.servers.carpool import (
    CARPOOL,
    CARPOOL_GATEWAY,
    CARPOOL_PROVIDER,
    CARPOOL_WATCHDOG,
)
from benchmarks.servers.flask import CARPOOL_FLASK, FLASK
from benchmarks.servers.kserve import CARPOOL_KSERVE, KSERVE
from benchmarks.servers.litserve import LITSERVE
from benchmarks.servers.mlserver import CARPOOL_MLSERVER, MLSERVER
from benchmarks.servers.mosec import MOSEC, MOSEC_ORJSON
from benchmarks.servers.openfaas import GATEWAY_EMPTY, OPENFAAS, OPENFAAS_WATCHDOG
from benchmarks.servers.rayserve import RAYSERVE

__all__ = ["SERVERS"]

SERVERS = {
    server.name: server
    for server in (
        CARPOOL,
        MOSEC_ORJSON,
        MOSEC,
        LITSERVE,
        MLSERVER,
        BENTOML,
        RAYSERVE,
        OPENFAAS,
        CARPOOL_WATCHDOG,
        CARPOOL_PROVIDER,
        CARPOOL_GATEWAY,
        GATEWAY_EMPTY,
        OPENFAAS_WATCHDOG,
        CARPOOL_MLSERVER,
        KSERVE,
        CARPOOL_KSERVE,
        FLASK,
        CARPOOL_FLASK,
    )
}
