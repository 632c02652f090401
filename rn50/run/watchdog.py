"""Watch the ranks of a run: find the rank that makes no progress, and the ranks that wait for it.

``timed_run.py`` runs inside a ``Watchdog`` on every rank. Once a second each rank sends rank 0 a heartbeat, a
datagram with the number of batches that it has begun and its activity. Rank 0 answers with its own heartbeat.
``Heartbeats`` judges them. The heartbeats do not use the framework's communication library, because that
library hangs when a rank has ended. Time is counted in turns of the watchdog's loop, about a second each, so
neither a clock that is set nor a machine that pauses looks like a stalled rank.
"""

import contextlib
import ipaddress
import json
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import psutil

from rn50.errors import UserError
from rn50.run.loop import Rank

VARIABLE = "RN50_WATCHDOG_S"
"""Environment variable that sets ``Limits.silent`` in whole seconds. The other limits change in
proportion."""
TURN_S = 1.0
"""Seconds of a turn."""
SLOW_STEPS = 5
"""Multiple of the longest step so far that a step may take, even if that is more than ``Limits.still``."""
WARN_AFTER = 0.4
"""Fraction of a limit after which a warning is printed."""
FIRST_WORDS_S = 5
"""Seconds for which ``Watchdog.__enter__`` waits for the first heartbeat of every rank."""
ADDRESSES = 16
"""Most addresses of rank 0 to which heartbeats are sent: rank 0 has one in each of its networks."""
DATAGRAM = 1024
"""Largest heartbeat in bytes."""

WAITING_FOR_DATA = "waiting for data"
WARMING_UP = "warming up"
"""Activities of a rank that ``Heartbeats`` judges in a way of their own."""


class Limits(NamedTuple):
    """The limits of a watchdog in seconds."""

    silent: float = 20
    """The run ends when a rank has sent no heartbeat for this long. Gloo gives up after 30 s, and cannot name
    the rank."""
    still: float = 30
    """The run ends when no step has ended for this long while the clock runs."""
    still_before_the_clock: float = 300
    """The limit in place of ``still`` before the clock starts: a step may take time to choose algorithms."""
    warming_up: float = 1800
    """The limit in place of ``still`` during the warm-up, which compiles and tunes kernels: PyTorch's
    max-autotune takes 6 to 9 minutes."""


def limits(environ: Mapping[str, str]) -> Limits:
    """Return the limits that ``VARIABLE`` sets, or the default ones if it is not set. Raises UserError if its
    value is no whole number of seconds."""
    defaults, seconds = Limits(), environ.get(VARIABLE, "")
    if not seconds:
        return defaults
    if not re.fullmatch("[1-9][0-9]{0,4}", seconds):
        problem = "no whole number of seconds from 1 to 99,999"
        raise UserError(f"{VARIABLE}={seconds}", problem, "correct or unset it")
    return Limits(*(int(seconds) * limit / defaults.silent for limit in defaults))


class RankState:
    """The last heartbeat of one rank: the name of its ``host``, the number of batches that it has begun
    (``steps``), and its activity (``doing``)."""

    def __init__(self) -> None:
        self.host, self.steps, self.doing = "?", 0, "starting"
        self.heard = False
        """True once a heartbeat has come."""
        self.silent = 0
        """Turns since the last heartbeat."""

    def record(self, host: str, steps: int, doing: str) -> None:
        """Record a heartbeat with these fields."""
        self.host, self.steps, self.doing = host, steps, doing
        self.heard, self.silent = True, 0


class Heartbeats:
    """The last heartbeats that this rank has received, and what they say about the run. Rank 0 has those of
    all ranks, its own included; another rank has those of rank 0 alone.

    ``size`` is the number of ranks of the run. ``turn`` is called once a second. ``silent_ranks`` and
    ``stalled_ranks`` describe in a line what is wrong, if anything is.
    """

    def __init__(self, ranks: Iterable[int], size: int, limits: Limits):
        self.ranks = {rank: RankState() for rank in ranks}
        self._size, self._limits = size, limits
        self._clock_runs = False
        # ``_steps`` is the sum of the ranks' batches at the last turn. ``_still`` counts the turns since the
        # sum last changed. A pause is the number of turns between two changes.
        self._steps = self._still = self._last_pause = self._longest_pause = 0

    def start_the_clock(self) -> None:
        """Apply the limit ``still`` from now on. Forget the longest step so far, in which kernels may have
        been compiled: the last step before the clock takes its place."""
        self._clock_runs = True
        self._longest_pause = self._last_pause
        self._still = 0

    def turn(self) -> None:
        """Advance by one turn."""
        for state in self.ranks.values():
            state.silent += 1
        steps = sum(state.steps for state in self.ranks.values())
        self._still += 1
        if steps != self._steps:
            self._last_pause = self._still
            self._longest_pause = max(self._longest_pause, self._last_pause)
            self._steps, self._still = steps, 0

    def silent_ranks(self, fraction: float = 1.0) -> str | None:
        """Return a line that names the ranks without a heartbeat for this ``fraction`` of the limit, and the
        ranks that wait for them. Return None if there are no such ranks."""
        limit = fraction * self._limits.silent
        silent = [rank for rank, state in self.ranks.items() if state.heard and state.silent >= limit]
        if not silent:
            return None
        turns = min(self.ranks[rank].silent for rank in silent)
        line = f"{self._names(silent)} not heard of for {turns} s{self._waiting_for(silent)}"
        return f"{line}; look at the process and the network"

    def stalled_ranks(self, fraction: float = 1.0) -> str | None:
        """Return a line that names the ranks that hold up all others, if no step has ended for this
        ``fraction`` of the limit; otherwise None. These are the ranks that wait for data, or, if none does,
        the ranks that have begun the fewest batches."""
        is_warming_up = any(state.doing == WARMING_UP for state in self.ranks.values())
        limit = self._limits.warming_up if is_warming_up else self._limits.still_before_the_clock
        if self._clock_runs:
            limit = max(self._limits.still, SLOW_STEPS * self._longest_pause)
        if self._still < fraction * limit:
            return None
        since = f"no step has ended for {self._still} s"
        if starved := [rank for rank, state in self.ranks.items() if state.doing == WAITING_FOR_DATA]:
            line = f"{since}: {self._names(starved)} {WAITING_FOR_DATA}{self._waiting_for(starved)}"
            return f"{line}; look at DATADIR there"
        fewest_steps = min(state.steps for state in self.ranks.values())
        behind = [rank for rank, state in self.ranks.items() if state.steps == fewest_steps]
        where = f"{since}: {self._names(behind)} {self.ranks[behind[0]].doing}, after batch {fewest_steps}"
        if len(behind) < len(self.ranks):
            return f"{where}{self._waiting_for(behind)}; look at the process and its device"
        return f"{where}; look at the devices, and at the network between them (NCCL_DEBUG=INFO)"

    def _waiting_for(self, ranks: list[int]) -> str:
        """Return the end of a sentence, which says that the other ranks wait for ``ranks``. Return "" if
        there are no others."""
        if len(ranks) == self._size:
            return ""
        # Only rank 0 knows the hosts of all ranks. Another rank, which misses rank 0, names no others.
        others = self._names([rank for rank in self.ranks if rank not in ranks]) or "the others"
        return f", and {others} waiting for {'it' if len(ranks) == 1 else 'them'}"

    def _names(self, ranks: list[int]) -> str:
        """Return the first four of ``ranks`` with their hosts, and the number of the others, as text."""
        names = [f"rank {rank} ({self.ranks[rank].host})" for rank in ranks]
        return ", ".join(names[:4]) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


class Watchdog:
    """The watchdog of one rank, in a thread of its own, from ``__enter__`` to ``__exit__``.

    ``watched`` is this rank: its communicator, the number of batches that it has begun (``steps``), and
    whether it waits for data. The run sets ``doing``, the current activity of this rank. ``warn`` prints a
    line, and ``end`` ends this process, with a line that says why or with None.

    When a limit comes near, rank 0 calls ``warn(line)``. The rank that notices that a limit is reached,
    mostly rank 0, calls ``end(line)``. Rank 0 first informs the other ranks, which call ``end(None)``.
    """

    def __init__(
        self, watched: Rank, warn: Callable[[str], None], end: Callable[[str | None], None], limits: Limits
    ):
        self.doing = "starting"
        self._watched = watched
        self._warn, self._end = warn, end
        self._rank, self._size = watched.communicator.rank, watched.communicator.size
        self._host = socket.gethostname()
        self.heartbeats = Heartbeats(range(self._size if self._rank == 0 else 1), self._size, limits)
        self._addresses: dict[int, Any] = {}
        """On rank 0: rank -> address that its last heartbeat came from."""
        self._has_warned = False
        """True while the last turn found a limit near: a warning is printed once."""
        self._all_heard, self._closed = threading.Event(), threading.Event()

    def __enter__(self) -> "Watchdog":
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self._token, self._addresses_of_rank_0 = self._agree_on_rank_0()
        threading.Thread(target=self._run, daemon=True).start()
        if not self._all_heard.wait(FIRST_WORDS_S) and self._rank == 0:
            unheard = ", ".join(str(rank) for rank, state in self.heartbeats.ranks.items() if not state.heard)
            problem = f"no datagram (UDP) of rank {unheard} reaches rank 0"
            self._warn(f"{problem}: should it stop, nobody can say so")
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def hosts(self) -> dict[int, str]:
        """Return rank -> host name: on rank 0 for all ranks, on the other ranks for rank 0 only."""
        return {rank: state.host for rank, state in self.heartbeats.ranks.items()}

    def _agree_on_rank_0(self) -> tuple[int, list[tuple[str, int]]]:
        """Return (token, addresses), the same on every rank: a random number that marks the heartbeats of
        this run, and the (IP address, port) of rank 0 in each of its networks."""
        # Token, port, and the addresses as numbers, followed by zeros.
        message = np.zeros(2 + ADDRESSES, dtype=np.int64)
        if self._rank == 0:
            addresses = [address for interface in psutil.net_if_addrs().values() for address in interface]
            ipv4 = {address.address for address in addresses if address.family == socket.AF_INET}
            numbers = sorted(int(ipaddress.IPv4Address(address)) for address in ipv4)[:ADDRESSES]
            # 62 bits, because the elements of the message are int64.
            message[: 2 + len(numbers)] = [secrets.randbits(62), self._socket.getsockname()[1], *numbers]
        # All other ranks send zeros, so the sum is the message of rank 0.
        token, port, *numbers = map(int, self._watched.communicator.all_reduce(message))
        return token, [(str(ipaddress.IPv4Address(number)), port) for number in numbers if number]

    def _run(self) -> None:
        """Make a turn a second until ``__exit__``: the body of the thread."""
        with self._socket:
            while not self._closed.is_set():
                self._speak()
                self._listen()
                self.heartbeats.turn()
                if not self._closed.is_set():
                    self._judge()

    def _doing_now(self) -> str:
        """Return the activity of this rank for a heartbeat."""
        return WAITING_FOR_DATA if self._watched.waits_for_data else self.doing

    def _speak(self) -> None:
        """Send a heartbeat to rank 0; on rank 0 record it without sending it."""
        if self._rank == 0:
            self._record(0, self._host, self._watched.steps, self._doing_now())
        else:
            for address in self._addresses_of_rank_0:
                self._send(address)

    def _send(self, address: Any, **more: bool) -> None:
        """Send a heartbeat of this rank to an address, with the further fields ``more``: none, or
        ``end=True``, which tells the receiver to end."""
        heartbeat = {
            "token": self._token,
            "rank": self._rank,
            "host": self._host[:64],
            "steps": self._watched.steps,
            "doing": self._doing_now(),
            **more,
        }
        with contextlib.suppress(OSError):  # if the network is down, rank 0 notices the silence
            self._socket.sendto(json.dumps(heartbeat).encode(), address)

    def _listen(self) -> None:
        """Receive and record heartbeats during one turn. On rank 0 answer each with a heartbeat."""
        deadline = time.monotonic() + TURN_S
        while time.monotonic() < deadline:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                datagram, sender = self._socket.recvfrom(DATAGRAM)
                heartbeat = json.loads(datagram)
                if not isinstance(heartbeat, dict) or heartbeat.get("token") != self._token:
                    continue
            except (OSError, ValueError):
                continue
            self._record(heartbeat["rank"], heartbeat["host"], heartbeat["steps"], heartbeat["doing"])
            if self._rank == 0:
                self._addresses[heartbeat["rank"]] = sender
                self._send(sender)
            elif heartbeat.get("end"):
                self._end(None)

    def _record(self, rank: int, host: str, steps: int, doing: str) -> None:
        """Record a heartbeat of ``rank``, and wake ``__enter__`` once every expected rank has sent one."""
        self.heartbeats.ranks[rank].record(host, steps, doing)
        if all(state.heard for state in self.heartbeats.ranks.values()):
            self._all_heard.set()

    def _judge(self) -> None:
        """End the run if a limit is reached; on rank 0 warn if one is near."""
        fault = self.heartbeats.silent_ranks()
        if not fault and self._rank == 0:  # the other ranks do not know all ranks' batches
            fault = self.heartbeats.stalled_ranks()
        if fault:
            for address in self._addresses.values():
                self._send(address, end=True)
            self._end(fault)
        if self._rank == 0:
            warning = self.heartbeats.silent_ranks(WARN_AFTER) or self.heartbeats.stalled_ranks(WARN_AFTER)
            if warning and not self._has_warned:
                self._warn(warning)
            self._has_warned = bool(warning)
