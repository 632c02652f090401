"""Watch the ranks of a run: find the rank that makes no progress, and the ranks that wait for it.

Once a second every rank sends rank 0 a heartbeat, a datagram with its number of batches and what it is doing,
and rank 0 answers. The heartbeats do not use the framework's communication library, because that is what
hangs when a rank is gone. Time is counted in turns of the watchdog itself, so neither a changed clock nor a
paused machine looks like a stalled rank.
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
"""Environment variable that sets ``Limits.silent`` in whole seconds, and the others in proportion."""
TURN_S = 1.0
SLOW_STEPS = 5
"""A step may in any case take this many times as long as the longest one so far."""
WARN_AFTER = 0.4
"""Share of a limit after which a warning is given."""
FIRST_WORDS_S = 5
"""Time limit for the first heartbeat of every rank."""
ADDRESSES = 16
"""Most addresses of rank 0 that are tried, one per network."""
DATAGRAM = 1024

WAITING_FOR_DATA = "waiting for data"
WARMING_UP = "warming up"


class Limits(NamedTuple):
    """The limits of a watchdog in seconds."""

    silent: float = 20
    """The run ends when a rank has sent no heartbeat for this long. Gloo gives up after 30 s, and cannot name
    the rank."""
    still: float = 30
    """The run ends when a step takes this long after the clock has started."""
    still_before_the_clock: float = 300
    """The same limit before the clock, where a step may choose algorithms."""
    warming_up: float = 1800
    """The same limit in the warm-up, when kernels are compiled and tuned: PyTorch's max-autotune takes 6 to 9
    minutes."""


def limits(environ: Mapping[str, str]) -> Limits:
    """Return the limits that ``VARIABLE`` asks for, or the usual ones. Raises UserError if it is not a number
    of seconds."""
    usual, asked = Limits(), environ.get(VARIABLE, "")
    if not asked:
        return usual
    if not re.fullmatch("[1-9][0-9]{0,4}", asked):
        problem = "no whole number of seconds from 1 to 99,999"
        raise UserError(f"{VARIABLE}={asked}", problem, "correct or unset it")
    return Limits(*(int(asked) * limit / usual.silent for limit in usual))


class RankState:
    """The last heartbeat of one rank."""

    def __init__(self) -> None:
        self.host, self.steps, self.doing = "?", 0, "starting"
        self.heard = False
        self.silent = 0
        """Turns since the last heartbeat."""


class Heartbeats:
    """Heartbeats of some of the ``size`` ranks, advanced once a second; says which rank is silent and which
    has stalled."""

    def __init__(self, ranks: Iterable[int], size: int, limits: Limits):
        self.ranks = {rank: RankState() for rank in ranks}
        self._size, self._limits = size, limits
        self._clock_runs = False
        self._steps = self._still = self._last_pause = self._longest_pause = 0

    def hear(self, rank: int, host: str, steps: int, doing: str) -> None:
        """Record a heartbeat of ``rank``."""
        seen = self.ranks[rank]
        seen.host, seen.steps, seen.doing, seen.heard, seen.silent = host, steps, doing, True, 0

    def start_the_clock(self) -> None:
        """Apply the limit of the timed part from now on. The steps so far compiled, so only the last one
        counts towards it."""
        self._clock_runs = True
        self._still, self._longest_pause = 0, self._last_pause

    def turn(self) -> None:
        """Advance by one second."""
        for seen in self.ranks.values():
            seen.silent += 1
        steps = sum(seen.steps for seen in self.ranks.values())
        self._still += 1
        if steps != self._steps:
            self._steps, self._last_pause, self._still = steps, self._still, 0
            self._longest_pause = max(self._longest_pause, self._last_pause)

    def gone(self, share: float = 1.0) -> str | None:
        """Return a line that names the ranks that were silent for ``share`` of the limit, and who waits for
        them; else None."""
        limit = share * self._limits.silent
        gone = [rank for rank, seen in self.ranks.items() if seen.heard and seen.silent >= limit]
        if not gone:
            return None
        turns = min(self.ranks[rank].silent for rank in gone)
        line = f"{self._names(gone)} not heard of for {turns} s{self._waiting_for(gone)}"
        return f"{line}; look at the process and the network"

    def still(self, share: float = 1.0) -> str | None:
        """Return a line that says who waits for whom if no step has ended for ``share`` of the limit; else
        None."""
        least = min(seen.steps for seen in self.ranks.values())
        warms_up = any(seen.doing == WARMING_UP for seen in self.ranks.values())
        limit = self._limits.warming_up if warms_up else self._limits.still_before_the_clock
        if self._clock_runs:
            limit = max(self._limits.still, SLOW_STEPS * self._longest_pause)
        if self._still < share * limit:
            return None
        since = f"no step has ended for {self._still} s"
        if starved := [rank for rank, seen in self.ranks.items() if seen.doing == WAITING_FOR_DATA]:
            line = f"{since}: {self._names(starved)} {WAITING_FOR_DATA}{self._waiting_for(starved)}"
            return f"{line}; look at DATADIR there"
        behind = [rank for rank, seen in self.ranks.items() if seen.steps == least]
        where = f"{since}: {self._names(behind)} {self.ranks[behind[0]].doing}, after batch {least}"
        if len(behind) < len(self.ranks):
            return f"{where}{self._waiting_for(behind)}; look at the process and its device"
        return f"{where}; look at the devices, and at the network between them (NCCL_DEBUG=INFO)"

    def _waiting_for(self, behind: list[int]) -> str:
        if len(behind) == self._size:
            return ""
        others = self._names([rank for rank in self.ranks if rank not in behind]) or "the others"
        return f", and {others} waiting for {'it' if len(behind) == 1 else 'them'}"

    def _names(self, ranks: list[int]) -> str:
        names = [f"rank {rank} ({self.ranks[rank].host})" for rank in ranks]
        return ", ".join(names[:4]) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


class Watchdog:
    """The watchdog of one rank, in a thread of its own, from ``__enter__`` to ``__exit__``.

    The run sets ``doing``, the current activity of this rank. ``warn(line)`` is called on rank 0 when a limit
    comes near. When one is reached, ``end`` is called on every rank: with the line to print on the rank that
    saw it, with None on the ranks that it informed.
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
        self._peers: dict[int, Any] = {}
        """Address of each other rank's last heartbeat, on rank 0."""
        self._warned = False
        self._all_heard, self._closed = threading.Event(), threading.Event()

    def __enter__(self) -> "Watchdog":
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self._token, self._rank_0 = self._agree_on_rank_0()
        threading.Thread(target=self._run, daemon=True).start()
        if not self._all_heard.wait(FIRST_WORDS_S) and self._rank == 0:
            unheard = ", ".join(str(rank) for rank, seen in self.heartbeats.ranks.items() if not seen.heard)
            problem = f"no datagram (UDP) of rank {unheard} reaches rank 0"
            self._warn(f"{problem}: should it stop, nobody can say so")
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def hosts(self) -> dict[int, str]:
        """Return rank -> host name; on rank 0 that of every rank."""
        return {rank: seen.host for rank, seen in self.heartbeats.ranks.items()}

    def _agree_on_rank_0(self) -> tuple[int, list[tuple[str, int]]]:
        """Return a random number that identifies this run, and the addresses of rank 0; the same on every
        rank."""
        note = np.zeros(2 + ADDRESSES, dtype=np.int64)
        if self._rank == 0:
            addresses = [address for interface in psutil.net_if_addrs().values() for address in interface]
            ipv4 = {address.address for address in addresses if address.family == socket.AF_INET}
            numbers = sorted(int(ipaddress.IPv4Address(address)) for address in ipv4)[:ADDRESSES]
            note[: 2 + len(numbers)] = [secrets.randbits(62), self._socket.getsockname()[1], *numbers]
        token, port, *numbers = map(int, self._watched.communicator.all_reduce(note))
        return token, [(str(ipaddress.IPv4Address(number)), port) for number in numbers if number]

    def _run(self) -> None:
        with self._socket:
            while not self._closed.is_set():
                self._speak()
                self._listen()
                self.heartbeats.turn()
                if not self._closed.is_set():
                    self._judge()

    def _doing_now(self) -> str:
        return WAITING_FOR_DATA if self._watched.waits_for_data else self.doing

    def _speak(self) -> None:
        if self._rank == 0:
            self._hear(0, self._host, self._watched.steps, self._doing_now())
        else:
            for address in self._rank_0:
                self._send(address)

    def _send(self, address: Any, **more: bool) -> None:
        words = {
            "token": self._token,
            "rank": self._rank,
            "host": self._host[:64],
            "steps": self._watched.steps,
            "doing": self._doing_now(),
            **more,
        }
        with contextlib.suppress(OSError):  # the network is down; the silence will be noticed
            self._socket.sendto(json.dumps(words).encode(), address)

    def _listen(self) -> None:
        """Receive heartbeats during one turn."""
        deadline = time.monotonic() + TURN_S
        while time.monotonic() < deadline:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                words, sender = self._socket.recvfrom(DATAGRAM)
                heard = json.loads(words)
                if not isinstance(heard, dict) or heard.get("token") != self._token:
                    continue
            except (OSError, ValueError):
                continue
            self._hear(heard["rank"], heard["host"], heard["steps"], heard["doing"])
            if self._rank == 0:
                self._peers[heard["rank"]] = sender
                self._send(sender)
            elif heard.get("end"):
                self._end(None)

    def _hear(self, rank: int, host: str, steps: int, doing: str) -> None:
        self.heartbeats.hear(rank, host, steps, doing)
        if not self._all_heard.is_set() and all(seen.heard for seen in self.heartbeats.ranks.values()):
            self._all_heard.set()

    def _judge(self) -> None:
        if fault := self.heartbeats.gone() or (self.heartbeats.still() if self._rank == 0 else None):
            for address in self._peers.values():
                self._send(address, end=True)
            self._end(fault)
        if self._rank == 0:
            warning = self.heartbeats.gone(WARN_AFTER) or self.heartbeats.still(WARN_AFTER)
            if warning and not self._warned:
                self._warn(warning)
            self._warned = bool(warning)
