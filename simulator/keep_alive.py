"""Instances that nobody needs just now: when they go, and when they are loaded again.

Without a keep-alive an instance stays as long as a plan wants it. With one, it stays for so long
after it was used, whether the plan wants it or not: one that is not wanted rests, and serves again
when a plan wants it or nobody else is there; one that is wanted, and has gone, sleeps until
somebody waits and no instance is free. With a prewarm time as well, all go as soon as the function
falls idle, and so long after that one is ready again; it goes too if nobody has come by the end of
the keep-alive, which counts from the same moment (Serverless in the Wild, ATC'20, section 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.instance import Phase

if TYPE_CHECKING:
    from carpool.plan import Plan
    from simulator.event_queue import EventQueue
    from simulator.fleet import Fleet
    from simulator.instance import Instance, Key

__all__ = ["KeepAlive"]


class KeepAlive:
    """Puts the instances of one function to sleep, and wakes them.

    Attributes:
        dormant: How many sleep.
    """

    def __init__(self, fleet: Fleet, agenda: EventQueue) -> None:
        self._fleet = fleet
        self._agenda = agenda
        self._keep_alive_s: float | None = None
        self._prewarm_s = 0.0
        self._asleep: dict[Key, int] = {}
        self._idle_times = 0
        self.dormant = 0

    @property
    def keeps(self) -> bool:
        """Whether an instance may stay that no plan wants."""
        return self._keep_alive_s is not None

    @property
    def restless(self) -> bool:
        """Whether instances may come and go while requests come as they do."""
        return self.dormant > 0 or self._prewarm_s > 0

    def follow(self, plan: Plan, lacking: dict[Key, int]) -> dict[Key, int]:
        """Go on under ``plan``, whose classes lack so many instances.

        Returns:
            How many of them are to be started: those that sleep already may sleep on.
        """
        before = self._asleep if plan.keep_alive_s is not None else {}
        self._keep_alive_s, self._prewarm_s = plan.keep_alive_s, plan.prewarm_s
        self._asleep = {key: min(before.get(key, 0), count) for key, count in lacking.items()}
        self.dormant = sum(self._asleep.values())
        return {key: count - self._asleep[key] for key, count in lacking.items()}

    def rests(self, instance: Instance, now: float) -> None:
        """``instance`` is idle since it was used last."""
        if self._keep_alive_s is None:
            if instance.phase is Phase.RESTING:
                self._fleet.release(instance, now)
        elif not instance.watched:
            instance.watched = True
            self._agenda.at(max(now, instance.used + self._keep_alive_s), self._look, instance)

    def fell_idle(self, now: float) -> None:
        """Nothing of the function waits or is in flight any more."""
        self._idle_times += 1
        if not self._prewarm_s or self._keep_alive_s is None:
            return
        for instance in self._fleet.idle:
            self._sleep(instance, now)
        ready_s = max(0.0, self._prewarm_s - self._fleet.load_s)
        self._agenda.at(now + ready_s, self._prewarm, now, self._idle_times)

    def demand(self, waiting: int, now: float) -> None:
        """So many wait, and no instance is free: wake one unless enough of them load."""
        self._idle_times += 1
        loading = [i for i in self._fleet.alive.values() if i.phase is Phase.LOADING]
        if self.dormant and waiting > sum([i.kind.batch_size for i in loading]):
            self._wake(now)

    def _look(self, now: float, instance: Instance) -> None:
        """See whether ``instance`` has been idle for too long."""
        instance.watched = False
        if instance.phase is Phase.GONE or instance.upstream.in_flight:
            return
        if self._keep_alive_s is None or instance.used + self._keep_alive_s > now:
            self.rests(instance, now)
        else:
            self._sleep(instance, now)

    def _sleep(self, instance: Instance, now: float) -> None:
        if instance.phase is not Phase.GONE and instance.wanted and instance.key in self._asleep:
            self._asleep[instance.key] += 1
            self.dormant += 1
        self._fleet.release(instance, now)

    def _wake(self, now: float, used: float | None = None) -> None:
        key = next(key for key, count in self._asleep.items() if count)
        self._asleep[key] -= 1
        self.dormant -= 1
        self._fleet.start(key, now, used=used)

    def _prewarm(self, now: float, fell_idle: float, idle_times: int) -> None:
        """Load one instance, unless somebody has come, or it is there again anyway."""
        if idle_times != self._idle_times or self._fleet.alive or self._keep_alive_s is None:
            return
        if self.dormant:
            self._wake(now, used=fell_idle)
        else:
            self._fleet.stand_by(now, used=fell_idle)
