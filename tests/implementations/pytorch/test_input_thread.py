"""Batches made ahead in a thread: whole and in order on a simulated device, errors passed on, and an end that
does not hang."""

import collections
import contextlib
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")

from implementations.pytorch.input_thread import InputThread  # noqa: E402
from rn50.errors import UserError  # noqa: E402

DEVICE = torch.device("cpu")
BATCHES = 200


class SimulatedDevice:
    """In place of ``torch.cuda``: its streams do what they are given later, in any order that events allow.

    ``favourite`` is the stream that runs first where it can: 0 training, 1 input; None: any.
    """

    def __init__(self, seed, favourite):
        self._random, self._favourite, self._lock = random.Random(seed), favourite, threading.RLock()
        self._current, self._streams, self.done = threading.local(), [], set()
        self.training = self.Stream(DEVICE)

    def Stream(self, device):
        stream = SimulatedStream(self)
        self._streams.append(stream)
        return stream

    def Event(self):
        return SimulatedEvent(self)

    def current_stream(self, device=None):
        return getattr(self._current, "stream", self.training)

    @contextlib.contextmanager
    def stream(self, stream):
        self._current.stream = stream
        yield

    def start(self, stream, operation):
        """Queue an operation, which returns False while it has to wait; let the device go on a little."""
        with self._lock:
            stream.queued.append(operation)
            for _ in range(self._random.randrange(3)):
                self._advance()

    def until(self, condition):
        while not condition():
            with self._lock:
                self._advance()

    def _advance(self):
        order = self._random.sample(self._streams, len(self._streams))
        if self._favourite is not None:
            order.sort(key=lambda stream: stream is not self._streams[self._favourite])
        for stream in order:
            if stream.queued and stream.queued[0]() is not False:
                stream.queued.popleft()
                return


class SimulatedStream:
    def __init__(self, device):
        self.queued, self._device = collections.deque(), device

    def wait_event(self, event):
        latest = event.latest
        self._device.start(self, lambda: latest is None or latest in self._device.done)


class SimulatedEvent:
    def __init__(self, device):
        self.latest, self._device = None, device

    def record(self, stream):
        mark = self.latest = object()
        self._device.start(stream, lambda: self._device.done.add(mark))

    def synchronize(self):
        time.sleep(0.0002)  # the other thread goes on meanwhile
        self._device.until(lambda: self.latest is None or self.latest in self._device.done)


def next_of(thread):
    thread.give_back()
    return thread.lend(thread.wait())


@pytest.mark.parametrize("favourite", [None, 0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_each_step_reads_its_own_batch(favourite, seed):
    device, numbers, read = SimulatedDevice(seed, favourite), iter(range(BATCHES)), []

    def fill(content, number):
        device.start(device.current_stream(), lambda: content.__setitem__(0, number))
        return -number

    thread = InputThread(lambda: next(numbers), fill, [[None] for _ in range(3)], DEVICE, device)
    for number in range(BATCHES):
        buffer = next_of(thread)
        assert buffer.remark == -number
        device.start(device.training, lambda content=buffer.content: read.append(content[0]))
        device.start(
            device.training, lambda content=buffer.content: read.append(content[0])
        )  # the backward pass reads it too
    device.until(lambda: not device.training.queued)
    assert read == [number for number in range(BATCHES) for _ in range(2)]


def opened(prepare):
    return InputThread(prepare, lambda content, prepared: prepared, [0, 0, 0], DEVICE, torch.cpu)


def test_nothing_is_made_before_the_first_is_asked_for_and_only_as_many_as_there_are_buffers():
    made = []
    thread = opened(lambda: made.append(len(made)))
    time.sleep(0.05)
    assert made == []
    next_of(thread)
    time.sleep(0.2)
    assert len(made) == 4  # one is lent, two are ready, and one waits for its buffer


@pytest.mark.parametrize(
    "error", [UserError("train.rec", "record 7 does not decode", "pack again"), RuntimeError("no memory")]
)
def test_an_error_reaches_whoever_waits_after_the_batches_before_it(error):
    given = iter([1, 2, error])

    def prepare():
        value = next(given)
        if isinstance(value, Exception):
            raise value
        return value

    thread = opened(prepare)
    assert [next_of(thread).remark, next_of(thread).remark] == [1, 2]
    with pytest.raises(type(error)) as caught:
        next_of(thread)
    assert caught.value is error
    with pytest.raises(RuntimeError, match="has ended"):  # and no wait for what never comes
        next_of(thread)


def inputs():
    return [each for each in threading.enumerate() if each.name == "input"]


@pytest.mark.parametrize("asked", [0, 1, 5])
def test_it_ends_with_its_owner(asked):
    thread = opened(lambda: None)
    for _ in range(asked):
        next_of(thread)
    assert len(inputs()) == (asked > 0)
    begin = time.monotonic()
    del thread
    assert not inputs() and time.monotonic() - begin < 5


def test_it_ends_where_training_fails():
    def train():
        thread = opened(lambda: None)
        next_of(thread)
        raise RuntimeError("out of memory")

    with contextlib.suppress(RuntimeError):
        train()
    assert not inputs()


PROGRAM = """
import signal, sys, threading, time
import torch
from implementations.pytorch import input_thread
input_thread.CLOSING_SECONDS = 1

def prepare():
    if sys.argv[1] == "stalled" or count.pop() == 0:
        print("stalled", flush=True)
        time.sleep(600)

count = list(range(3))
cpu = torch.device("cpu")
thread = input_thread.InputThread(prepare, lambda content, prepared: None, [0, 0, 0], cpu, torch.cpu)
while True:
    thread.give_back()
    thread.lend(thread.wait())
"""


@pytest.mark.parametrize("storage", ["stalled", "slow"])
def test_ctrl_c_ends_a_process_whose_storage_has_stalled(storage):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, storage], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"stalled\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT and complaint.strip().endswith(b"KeyboardInterrupt"), (
        complaint
    )
