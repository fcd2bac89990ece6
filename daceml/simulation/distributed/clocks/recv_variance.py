"""dPRO's objective for offsets of clocks: communications of one family take equally long on all ranks."""

from __future__ import annotations

import numpy as np

from daceml.simulation.distributed.clocks.clock_estimates import Clocks, Hosts
from daceml.simulation.distributed.clocks.timings import Floats, Timings

_ROUNDS = 200
_CAUSAL_WEIGHT = 10.0


def least_variance(timings: Timings, host: Hosts, start: Clocks) -> Clocks:
    """Minimise the sum over families of the variance of pure durations, from a first estimate on.

    A member's pure duration lasts from the start of the last member to its own end. Which one is last depends
    on the offsets, so the objective has several minima; the search (L-BFGS) finds the one near its start.
    Durations below zero, which break causality, cost the more. In the paper a family is one rank's receptions
    of one tensor in several iterations; here all members belong to it, as all of them end a collective.

    Source: Hu et al., dPRO (MLSys '22), section 4.2, O1; O2 holds exactly, as a host has one offset.
    """
    from scipy.optimize import minimize  # heavy: only where clocks are aligned

    hosts = int(host.max()) + 1
    members, (k, column) = timings.members, np.nonzero(timings.members)
    family = timings.family[k]
    families = int(family.max(initial=0)) + 1
    size = np.maximum(np.bincount(family, minlength=families), 1)

    def objective(offsets: Floats) -> tuple[float, Floats]:
        theta = np.concatenate([[0.0], offsets])
        begins = np.where(members, timings.start_us + theta[host], -np.inf)
        last = begins.argmax(axis=1)
        pure = timings.end_us[k, column] + theta[host[column]] - begins[k, last[k]]
        mean = np.bincount(family, pure, minlength=families) / size
        # the mean's own dependence on the offsets cancels, as deviations from it add up to zero
        slope = 2.0 * (pure - mean[family]) / size[family]
        below = np.minimum(pure, 0.0)
        slope = slope + 2.0 * _CAUSAL_WEIGHT * below / len(pure)
        cost = float((((pure - mean[family]) ** 2) / size[family]).sum() + _CAUSAL_WEIGHT * np.mean(below**2))
        gradient = np.bincount(host[column], slope, minlength=hosts)
        gradient -= np.bincount(host[last[k]], slope, minlength=hosts)
        return cost, gradient[1:].astype(np.float64)

    begin = start.offset_us - start.offset_us[0]
    answer = minimize(objective, begin[1:], jac=True, method="L-BFGS-B", options={"maxiter": _ROUNDS})
    return Clocks(offset_us=np.concatenate([[0.0], answer.x]), drift_ppm=np.zeros(hosts))
