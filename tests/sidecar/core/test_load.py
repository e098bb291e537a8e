"""What a sidecar counts for whoever plans."""

from __future__ import annotations

from carpool.spread import bin_of
from sidecar.core.batch import Batch
from sidecar.core.dispatch import Upstream
from sidecar.core.load import Load
from sidecar.core.request import Request
