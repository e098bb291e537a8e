"""Assembles a sidecar around its function's process, and serves until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from carpool import wire
from carpool.http.server import Limits, serve
from carpool.memory import collect_rarely
from sidecar.core.admission.shedding import Shedding
from sidecar.core.batcher import Batcher
from sidecar.core.objective_check import ObjectiveCheck, slower_than
from sidecar.core.policy_guard import PolicyGuard
from sidecar.options import HEADS_BYTES
from sidecar.policies.choice import build_policy
from sidecar.policies.fixed import FixedWindow
from sidecar.runtime import cors
from sidecar.runtime.batch_loop import BatchLoop
from sidecar.runtime.compression import Compression
from sidecar.runtime.endless_policy import EndlessPolicy
from sidecar.runtime.ingress import Ingress, fingerprint
from sidecar.runtime.merging import protocol_of
from sidecar.runtime.metrics import Metrics
from sidecar.runtime.recent_batches import RecentBatches
from sidecar.runtime.request_log import RequestLog
from sidecar.runtime.streams import Streams
from sidecar.runtime.upstreams import FunctionUpstreams

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.http.server import Server
    from carpool.settings import FunctionSettings
    from sidecar.options import Options
    from sidecar.runtime.handler_liveness import ProbedInstance
    from sidecar.runtime.handler_process import HandlerProcess
    from sidecar.runtime.oip_grpc.service import GrpcServer
    from sidecar.runtime.scaler_membership import Membership
    from sidecar.runtime.tracing import Tracing

__all__ = ["serve_function"]

log = logging.getLogger(__name__)

_HOP_S = 1.0  # longer than the instance's sidecar waits before it restarts its handler
_DRAIN_MAX_S = 3600.0  # if batches have no time limit


async def serve_function(
    settings: FunctionSettings,
    options: Options,
    env: Mapping[str, str],
    handler: HandlerProcess | None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    Args:
        settings: settings of the function.
        options: options of the sidecar.
        env: environment of the sidecar.
        handler: the function's process, already started and stopped by the caller; None if the
            instances run elsewhere.

    Raises:
        ConfigError: the settings cannot be used.
        OSError: the address cannot be bound.
    """
    tracing = _tracing(options)
    metrics = Metrics(settings, RequestLog.of(options.log_requests), tracing)
    metrics.objective_check = _objective_check(settings)

    def policy_replaced(reason: str) -> None:
        metrics.policy_failures += 1
        log.error("policy %s failed and is replaced by fixed: %s", settings.batch_policy, reason)

    if ":" in settings.batch_policy:
        _import_beside_handler(env)
    policy, fallback = build_policy(settings), FixedWindow(FixedWindow.Params(wait_s=0.0))
    batcher = Batcher(
        PolicyGuard(policy, fallback, policy_replaced),
        batch_max=settings.batch_max,
        queue_max=settings.queue_max,
        background_share=settings.background_share,
        shedding=Shedding(settings.shedding, settings.shed_cap),
        batch_bytes_max=options.body_max_bytes,
        fingerprint=fingerprint,
    )
    upstreams = FunctionUpstreams(
        batcher, options.answer_max_bytes + HEADS_BYTES, protocol_of(settings.wire)
    )
    recent = RecentBatches(time.time)
    ingress = Ingress(settings, time.time, upstreams.backoff, tracing)
    batch_timeout_s = options.exec_timeout_s + (_HOP_S if options.is_front else 0.0)
    batch_loop = BatchLoop(batcher, ingress, metrics, recent, upstreams, batch_timeout_s)
    batch_loop.streams = Streams(
        upstreams,
        metrics,
        batch_loop.readiness,
        settings.streams_max,
        settings.queue_max,
        batch_timeout_s,
    )
    batch_loop.compression = Compression.of(settings.compress_from_bytes)
    _start_upstreams(batch_loop, settings, options, handler)
    member = _membership(options, batch_loop)
    overhead_bytes = wire.OVERHEAD_BYTES if options.is_instance else 0
    limits = Limits(body_bytes=options.body_max_bytes + overhead_bytes).behind_proxy()
    app = cors.around(batch_loop, settings.cors_origins)
    server = await serve(app, listen=options.listen, limits=limits)
    _shed_early(batch_loop, server, settings, options)
    log.info("listening on %s, policy %s", server.address, settings.batch_policy)
    admin_server = await _admin(options, env, recent, batch_loop)
    grpc_server = await _grpc(options, server)
    metrics.watch_server(server)
    if member:
        member.join()
    batch_loop.readiness.tell_if_ready()
    collect_rarely()
    if not type(policy).__module__.startswith("sidecar."):
        EndlessPolicy().watch()
    await _asked_to_stop()
    await _drain(batch_loop, server, grpc_server, member, options)
    if admin_server:
        await admin_server.stop()
    upstreams.close()
    if tracing:
        await asyncio.to_thread(tracing.close)


async def _drain(
    batch_loop: BatchLoop,
    server: Server,
    grpc_server: GrpcServer | None,
    member: Membership | None,
    options: Options,
) -> None:
    """Send clients elsewhere, answer pending requests, and stop listening."""
    log.info("draining")
    batch_loop.drain()
    server.retire()
    if member:
        await member.leave()
    await asyncio.sleep(options.drain_delay_s)
    server.close()
    limit_s = min(options.exec_timeout_s, _DRAIN_MAX_S)
    calls = grpc_server.stop(limit_s) if grpc_server else asyncio.sleep(0)
    await asyncio.gather(server.drain(limit_s), calls)
    await server.stop()


async def _asked_to_stop() -> None:
    """Wait for SIGTERM or SIGINT."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _membership(options: Options, batch_loop: BatchLoop) -> Membership | None:
    """Make this sidecar a front or an instance; None if there is no scaler."""
    if not (options.is_front or options.is_instance):
        return None
    from sidecar.runtime import scaler_membership  # noqa: PLC0415 - needs the messages and plans

    join = scaler_membership.front if options.is_front else scaler_membership.instance
    return join(options, batch_loop)


async def _admin(
    options: Options, env: Mapping[str, str], recent: RecentBatches, batch_loop: BatchLoop
) -> Server | None:
    """Serve the admin API, if there is an address for it."""
    if not options.admin:
        return None
    from sidecar.runtime.admin import Admin  # noqa: PLC0415 - reads plans, as the scaler does

    function = env.get("OPENFAAS_NAME", "")
    upstreams, changed = batch_loop.upstreams, batch_loop.changed
    admin = Admin(function, options.admin_token, options.admin, upstreams, recent, changed)
    admin_server = await serve(admin, listen=options.admin)
    log.info("admin API on %s", admin_server.address)
    return admin_server


def _tracing(options: Options) -> Tracing | None:
    """Return the tracing of requests; None if no collector is named."""
    if not options.traces:
        return None
    from sidecar.runtime.tracing import Tracing  # noqa: PLC0415 - only tracing needs it

    return Tracing(options.traces, options.trace_share, options.function)


async def _grpc(options: Options, server: Server) -> GrpcServer | None:
    """Serve gRPC as well, if there is an address for it; an instance is called by its front."""
    if not options.grpc or options.is_instance:
        return None
    from sidecar.runtime.oip_grpc import service  # noqa: PLC0415 - only this needs the extra

    grpc_server = await service.serve(server, options.grpc)
    log.info("gRPC on %s", grpc_server.address)
    return grpc_server


def _shed_early(
    batch_loop: BatchLoop, server: Server, settings: FunctionSettings, options: Options
) -> None:
    """Refuse requests before parsing, except the batches of fronts, which refuse themselves."""
    objective_s = settings.objective_s
    if settings.shedding == "on" and objective_s is not None and not options.is_instance:
        batch_loop.shed_early(server, objective_s, settings.batch_max)


def _objective_check(settings: FunctionSettings) -> ObjectiveCheck | None:
    """Return a check that warns of a function slower than its objective; None without one."""
    objective_s = settings.objective_s
    if objective_s is None:
        return None
    name = "com.carpool.slo" if settings.slo_s == objective_s else "com.carpool.apps"

    def warn(single_s: float) -> None:
        log.warning("%s", slower_than(name, objective_s, single_s))

    return ObjectiveCheck(objective_s, warn)


def _start_upstreams(
    batch_loop: BatchLoop,
    settings: FunctionSettings,
    options: Options,
    handler: HandlerProcess | None,
) -> None:
    """Serve with the instances behind this sidecar; those of a front are set later."""
    upstreams = batch_loop.upstreams

    def on_change(instance: ProbedInstance) -> None:
        if handler and instance.up:
            handler.became_ready()
        batch_loop.changed()
        batch_loop.readiness.tell_if_ready()

    upstreams.on_change = on_change
    if not handler:
        upstreams.start(options.upstreams, settings.batch_max)
        return
    upstreams.key = handler.key
    (local,) = upstreams.start([handler.address], settings.batch_max)

    def ended(reason: str) -> None:
        batch_loop.metrics.restarted(reason)
        local.ended("its process ended")  # a restart between two probes would be missed
        batch_loop.changed()

    local.restart_with(handler.kill_hung, options.silence_max_s, lambda: handler.pid != 0)
    batch_loop.readiness.failing = lambda: handler.failing
    batch_loop.readiness.crashes = lambda: handler.crashes
    handler.observe(ended, local.probe_soon)


def _import_beside_handler(env: Mapping[str, str]) -> None:
    """Let a policy be a file in the function's folder, searched last."""
    sys.path.append(str(Path(env.get("function_dir") or "function").resolve()))
