"""The choice among many instances equals the sidecar's choice after any history."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.core.dispatch import Route, Upstream, Upstreams
from sidecar.core.exec_time import ExecTime
from simulator.many_upstreams import ManyUpstreams
from tests.effort import scaled

WEIGHTS = (None, {"a": 0.7, "b": 0.3}, {"c": 1.0, "a": 0.0})


class Twins:
    """Two copies of the same instances and routes that get the same events."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.few, self.many = Upstreams(), ManyUpstreams()
        self.pairs: dict[str, tuple[Upstream, Upstream]] = {}
        self.routes = [(Route(weights), Route(weights)) for weights in WEIGHTS]
        self._times: dict[tuple[str, int], ExecTime] = {}
        self._joined = 0

    def join(self) -> None:
        """Add an instance."""
        self._joined += 1
        name, kind, most = f"i{self._joined}", self.draw.choice("abc"), self.draw.choice([1, 4])
        time = self._times.setdefault((kind, most), ExecTime())
        one, same = (Upstream(name, most, kind, up=True, exec_time=time) for _ in range(2))
        self.pairs[name] = one, same
        self.few.add(one)
        self.many.add(same)

    def leave(self) -> None:
        """Remove some instances, and perhaps add the remaining ones again as a new plan does."""
        names = self.draw.sample(sorted(self.pairs), self.draw.randint(0, len(self.pairs)))
        self.pairs = {name: both for name, both in self.pairs.items() if name in names}
        self.few.keep([self.pairs[name][0] for name in names])
        self.many.keep([self.pairs[name][1] for name in names])
        for name in names if self.draw.random() < 0.5 else ():
            self.few.add(self.pairs[name][0])
            self.many.add(self.pairs[name][1])

    def learn(self) -> None:
        """Make the instances of one kind fast or slow."""
        time = self.draw.choice(list(self._times.values()))
        exec_s = self.draw.choice([0.001, 0.2])
        for _ in range(9):
            time.observe(4, exec_s)

    def judge(self) -> None:
        """Make an instance overloaded, interfered or well."""
        both = self.draw.choice([*self.pairs.values(), None])
        if both:
            overloaded, interfered = self.draw.choice(
                [(False, False), (True, False), (False, True)]
            )
            for upstream in both:
                upstream.overloaded, upstream.interfered = overloaded, interfered
            self.many.keep(list(self.many))

    def land(self) -> None:
        """Finish a batch."""
        flying = [both for both in self.pairs.values() if both[0].in_flight]
        if flying:
            one, same = self.draw.choice(flying)
            one.in_flight -= 1
            same.in_flight -= 1
            self.many.moved(same)

    def choose(self, mine: Route, its: Route) -> None:
        """Check that both choose the same instance, and perhaps send it a batch."""
        items, now = self.draw.randint(1, 6), 0.0
        assert self.few.has_capacity(now) == self.many.has_capacity(now)
        chosen, same = self.few.next_free(mine, now), self.many.next_free(its, now)
        if not (chosen or same):
            chosen = self.few.next_to_pipeline(mine, items, now)
            same = self.many.next_to_pipeline(its, items, now)
        assert (chosen and chosen.name) == (same and same.name)
        if chosen and same and self.draw.random() < 0.5:
            chosen.batch_sent(items, mine)
            same.batch_sent(items, its)
            self.many.moved(same)


@settings(max_examples=scaled(150))
@given(seed=st.integers(0, 10**9))
def test_many_upstreams_makes_same_choices_as_upstreams(seed: int) -> None:
    """The choices stay equal through batches, joining, leaving and new plans."""
    twins = Twins(seed)
    twins.join()
    for _ in range(60):
        happens = twins.draw.choices(
            [twins.join, twins.leave, twins.learn, twins.judge, twins.land], [3, 1, 2, 2, 6]
        )[0]
        happens()
        for mine, its in twins.routes:
            twins.choose(mine, its)
        assert [u.items_sent for u in twins.few] == [u.items_sent for u in twins.many]
