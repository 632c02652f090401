"""A pool of processes of which one is killed at a bad moment."""

import os
import signal
import struct
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

from rn50.data.workers import Processes


def half_a_result():
    """Write the beginning of a result, as a process does that is killed while the pipe is full."""
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    queue = frame.f_locals["result_queue"]
    queue._wlock.acquire()
    os.write(queue._writer.fileno(), struct.pack("!i", 1000) + b"begins")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_killed_while_it_writes_a_result_ends_the_pool():
    """The standard library's pool waits for the rest of the result for ever."""
    raised = []

    def used():
        with Processes(2) as processes:
            futures = [processes.submit(time.sleep, 60), processes.submit(half_a_result)]
            for future in futures:
                try:
                    future.result()
                except BrokenProcessPool as error:
                    raised.append(error)

    thread = threading.Thread(target=used, daemon=True)  # which the test need not wait for
    thread.start()
    thread.join(30)
    assert not thread.is_alive() and len(raised) == 2


def test_processes_that_end_by_themselves_end_no_other():
    with Processes(2) as processes:
        slow, quick = processes.submit(time.sleep, 0.5), [processes.submit(int, text) for text in "12345"]
        assert [future.result() for future in quick] == [1, 2, 3, 4, 5]
    assert slow.result() is None


def test_an_error_in_a_process_leaves_the_pool_whole():
    with Processes(1) as processes:
        with pytest.raises(ValueError):
            processes.submit(int, "x").result()
        assert processes.submit(int, "7").result() == 7


def test_ctrl_c_waits_until_a_process_has_started(monkeypatch):
    """A process that is started while another thread takes the signal would lack its first message."""
    over, went_on = threading.Event(), []
    threading.Thread(target=over.wait, daemon=True).start()  # does not block the signal

    def submit(pool, function):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(100):
            time.sleep(0.001)
        went_on.append(function)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submit)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            Processes(1).submit(half_a_result)
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)
    assert went_on == [half_a_result]
