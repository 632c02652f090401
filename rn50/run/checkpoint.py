"""The state of a run between two epochs, from which RESUME=1 goes on: CHECKPOINT_EPOCHS.

A checkpoint is written while the clock runs. After it the input pipeline starts anew, with a seed that
follows from the run's seed and the epoch, because the state of its random numbers cannot be saved. So a
resumed run goes on exactly as the run that wrote the checkpoint did or would have done.
"""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import safetensors
from safetensors import numpy as format_

from rn50 import files, frameworks
from rn50.errors import UserError, excerpt
from rn50.run import all_reduce
from rn50.run.engine import Communicator
from rn50.run.loop import Rank
from rn50.settings.config import Config
from rn50.settings.parsers import SEED
from rn50.weights import weights_file

SUFFIX = ".checkpoint.safetensors"
LARGEST_SEED = 1 << 31
_MOMENTUM, _RUNNING = "_momentum", "_running_"
_REMEDY = "start without RESUME=1"


class Checkpoint(NamedTuple):
    """Content of a file of ``write``."""

    file: pathlib.Path
    epoch: int
    """The last epoch that was trained."""
    seed: int
    """The seed of the run."""
    precision: str
    arrays: Mapping[str, np.ndarray]


def path(config: Config) -> pathlib.Path:
    """Return the path of the checkpoint of a run, beside its log."""
    return pathlib.Path(str(config.run.result_file)).with_suffix(SUFFIX)


def peek(config: Config) -> tuple[int, str]:
    """Return the epoch and the configuration's hash of the checkpoint beside the log; 0 and that of
    ``config`` if none is usable."""
    with contextlib.suppress(UserError, safetensors.SafetensorError, OSError, KeyError, ValueError):
        with _opened(path(config)) as opened:
            facts = opened.metadata() or {}
        return int(facts["epoch"]), facts["configuration"]
    return 0, config.sha256


@contextlib.contextmanager
def _opened(file: pathlib.Path) -> Iterator[Any]:
    with (
        files.open_regular(file, _REMEDY) as stream,
        safetensors.safe_open(f"/proc/self/fd/{stream.fileno()}", "np") as opened,
    ):
        yield opened


def remarks(config: Config) -> Iterator[str]:
    """Yield a line if an earlier run left a checkpoint from which this run does not resume."""
    if config.run.result_file and not config.run.resume and (epoch := peek(config)[0]):
        held = f"{path(config)} holds epoch {epoch} of an interrupted run: RESUME=1 (rn50 run --resume)"
        yield f"{held} goes on from there; else it stays until a checkpoint of this run is as far"


def refuse_impossible(config: Config) -> None:
    """Raise UserError if checkpoints are to be written but cannot be: the log has no file, or another file or
    the checkpoint of another configuration is in the way."""
    if config.run.checkpoint_epochs:
        if not config.run.result_file:
            subject = f"CHECKPOINT_EPOCHS={config.run.checkpoint_epochs}"
            problem = "checkpoints are saved beside the log, which has no file"
            raise UserError(subject, problem, "set RESULT_FILE")
        files.refuse_to_replace(path(config), files.CHECKPOINT, remedy="set another RESULT_FILE")
        _refuse_another(config, *peek(config))


def _refuse_another(config: Config, epoch: int, configuration: str) -> None:
    if configuration != config.sha256:
        problem = f"holds epoch {epoch} of an interrupted run of another configuration"
        raise UserError(path(config), problem, "set its variables and RESUME=1, or move it away")


def seed_after(seed: int, epoch: int) -> int:
    """Return the seed of the input pipeline that starts after a checkpoint."""
    return int(np.random.default_rng((seed, epoch)).integers(LARGEST_SEED))


def write(config: Config, rank: Rank, seed: int, epoch: int) -> None:
    """Write the state after ``epoch`` in place of one of an earlier epoch, and start the input pipeline anew.
    All ranks call it.

    Raises UserError if it cannot be written.
    """
    weights, communicator = rank.weights(), rank.communicator
    arrays = {**weights, **{f"{name}{_MOMENTUM}": array for name, array in rank.momentum().items()}}
    arrays.update(_statistics_of_ranks(weights, communicator))
    if communicator.rank == 0 and epoch >= peek(config)[0]:
        facts = {
            "file": files.MARK,
            "configuration": config.sha256,
            "seed": str(seed),
            "epoch": str(epoch),
            "precision": rank.precision.name,
        }
        remedy = "free the disk, or set another RESULT_FILE"
        files.write(path(config), format_.save(arrays, facts), files.OURS, remedy)
    rank.begin_after(epoch, seed_after(seed, epoch))


def read(config: Config) -> Checkpoint | None:
    """Return the checkpoint from which a run of ``config`` goes on; None if it starts at the beginning.

    Raises UserError if the file is not a checkpoint of this configuration.
    """
    if not config.run.resume or not config.run.result_file:
        return None
    file = path(config)
    try:
        with _opened(file) as opened:
            facts = opened.metadata() or {}
            _refuse_another(config, int(facts["epoch"]), facts["configuration"])
            _refuse_impossible_facts(facts, config)
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 not a mapping
    except files.MissingError:
        return None
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(file, f"no checkpoint ({error})", _REMEDY) from None
    weights_file.refuse_impossible(file, arrays, _REMEDY)
    return Checkpoint(file, int(facts["epoch"]), int(facts["seed"]), facts["precision"], arrays)


def _refuse_impossible_facts(facts: Mapping[str, str], config: Config) -> None:
    """Raise ValueError, or KeyError for a missing one, unless a run of ``config`` could have saved these
    facts."""
    run, last = config.run, config.evaluation_epochs[-1]
    if not 1 <= int(facts["epoch"]) < last:
        raise ValueError(f"epoch {excerpt(facts['epoch'])}, of a run that ends with {last}")
    if not SEED.holds(int(facts["seed"])):
        raise ValueError(f"seed {excerpt(facts['seed'])}, which {SEED.text}")
    possible = frameworks.traits(run.framework).precisions[run.device]
    if facts["precision"] not in (possible if run.precision == "auto" else (run.precision,)):
        raise ValueError(f"precision {excerpt(facts['precision'])}, in which this run does not train")


def restore(checkpoint: Checkpoint, rank: Rank) -> None:
    """Give a warmed-up rank the weights and the momentum of a checkpoint.

    Raises UserError if they are of another network.
    """
    weights, momentum = rank.weights(), rank.momentum()
    of_rank = f"rank{rank.communicator.rank}/"
    saved = {name: checkpoint.arrays.get(f"{of_rank}{name}", checkpoint.arrays.get(name)) for name in weights}
    velocities = {name: checkpoint.arrays.get(f"{name}{_MOMENTUM}") for name in momentum}
    for kept, expected in ((saved, weights), (velocities, momentum)):
        for name, array in expected.items():
            value = kept[name]
            if value is None or value.shape != array.shape or value.dtype != array.dtype:
                raise UserError(checkpoint.file, f"no checkpoint of this network (it lacks {name})", _REMEDY)
    rank.assign({name: array for name, array in saved.items() if array is not None})
    rank.assign_momentum({name: array for name, array in velocities.items() if array is not None})


def remove(config: Config) -> None:
    """Remove the checkpoint of a finished run."""
    with contextlib.suppress(OSError):
        path(config).unlink()


def _statistics_of_ranks(
    weights: Mapping[str, np.ndarray], communicator: Communicator
) -> dict[str, np.ndarray]:
    """Return the running statistics of every rank but the first, by name."""
    statistics = {}
    for name in (name for name in weights if _RUNNING in name):
        # A communicator sums integers only, so each rank places the bits of its numbers among zeros.
        table = np.zeros((communicator.size, weights[name].size), np.int64)
        table[communicator.rank] = weights[name].reshape(-1).view(np.int32)
        bits = all_reduce.in_pieces(communicator, table.reshape(-1)).astype(np.int32)
        of_ranks = bits.view(np.float32).reshape(communicator.size, *weights[name].shape)
        statistics.update({f"rank{rank}/{name}": of_ranks[rank] for rank in range(1, communicator.size)})
    return statistics
