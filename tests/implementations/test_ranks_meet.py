"""What ranks of torch.distributed's kind have in common, whatever the framework: ports in use, lost ranks,
ranks on their own."""

import importlib
import os
import socket
from unittest import mock

import pytest

from rn50.errors import RankLostError, UserError

LOST = "[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1234"


@pytest.fixture(params=["paddle", "pytorch"])
def communicator(request):
    """The module of a framework that connects its ranks."""
    pytest.importorskip({"paddle": "paddle", "pytorch": "torch"}[request.param])
    return importlib.import_module(f"implementations.{request.param}.communicator")


def test_a_rank_that_nobody_started_with_others_is_refused(communicator):
    with pytest.raises(UserError, match="nobody has started more than one rank; use ./run_and_time.sh"):
        communicator.Distributed(False, {})


def test_a_port_that_is_in_use_is_named(communicator):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        environ = {
            "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port}
        with (
            mock.patch.dict(os.environ, environ),
            pytest.raises(UserError, match=f"127.0.0.1:{port}: .* set MASTER_PORT"),
        ):
            communicator.Distributed(False, os.environ)


@pytest.mark.parametrize("error", [RuntimeError(LOST), OSError(f"(External) Gloo: {LOST}")])
def test_what_is_reported_of_a_lost_rank_is_named(communicator, error):
    if isinstance(error, OSError) and "paddle" not in communicator.__name__:
        pytest.skip("PyTorch reports it by a RuntimeError")
    with pytest.raises(RankLostError), communicator.Distributed.lost_rank_named():
        raise error
    with pytest.raises(RuntimeError, match="out of memory"), communicator.Distributed.lost_rank_named():
        raise RuntimeError("out of memory")
