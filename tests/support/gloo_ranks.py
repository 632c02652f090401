"""Starts ranks that meet by the variables of torch.distributed, as in a Slurm step: ``python -m
tests.support.gloo_ranks RANKS COMMAND...``; ends with the status of the first that fails, and kills the
others."""

import os
import socket
import subprocess
import sys
import time

ranks, command = int(sys.argv[1]), sys.argv[2:]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
common = {
    **os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    "GLOO_SOCKET_IFNAME": "lo"}
processes = [
    subprocess.Popen(command, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    for rank in range(ranks)]
while None in (statuses := [process.poll() for process in processes]) and not any(statuses):
    time.sleep(0.1)
for process in processes:
    process.kill()
sys.exit(next((status for status in statuses if status), 0))
