"""Checkpoints: the state of a run after an epoch, which RESUME=1 resumes from.

CHECKPOINT_EPOCHS sets how often ``timed_run.py`` calls ``write``, while the clock runs. The state of the
input pipeline's random numbers cannot be saved. So ``write`` restarts the pipeline with a seed that follows
from the run's seed and the epoch, and a resumed run starts its pipeline with the same seed. It then trains
exactly as the run that wrote the checkpoint would have done.
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
"""Seeds of the input pipeline are below this."""
_RUNNING = "_running_"
"""Part of the name of every tensor with running statistics of batch norm."""
_REMEDY = "start without RESUME=1"


class Checkpoint(NamedTuple):
    """The content of a file that ``write`` wrote."""

    file: pathlib.Path
    epoch: int
    """The last epoch that was trained."""
    seed: int
    """The seed of the run."""
    precision: str
    arrays: Mapping[str, np.ndarray]
    """float32 arrays: those of ``Rank.weights`` and ``Rank.state`` of rank 0 under their names, and of every
    other rank N the running statistics and their averages as rankN/NAME."""


def path(config: Config) -> pathlib.Path:
    """Return the path of the checkpoint of a run, beside its log."""
    return pathlib.Path(str(config.run.result_file)).with_suffix(SUFFIX)


def peek(config: Config) -> tuple[int, str]:
    """Return (epoch, SHA-256 of the configuration) of the checkpoint beside the log. If there is no usable
    checkpoint, return 0 and the SHA-256 of ``config`` itself, as of a checkpoint that is not in the way."""
    with contextlib.suppress(UserError, safetensors.SafetensorError, OSError, KeyError, ValueError):
        with _opened(path(config)) as opened:
            facts = opened.metadata() or {}
        return int(facts["epoch"]), facts["configuration"]
    return 0, config.sha256


@contextlib.contextmanager
def _opened(file: pathlib.Path) -> Iterator[Any]:
    """Yield a safetensors file, opened for reading. Raises as ``files.open_regular`` does."""
    # safetensors opens files by path only. The path of the descriptor leads to the very file that
    # ``open_regular`` has checked.
    with files.open_regular(file, _REMEDY) as stream:
        path_of_descriptor = f"/proc/self/fd/{stream.fileno()}"
        with safetensors.safe_open(path_of_descriptor, "np") as opened:
            yield opened


def remarks(config: Config) -> Iterator[str]:
    """Yield a line if an earlier run left a checkpoint from which this run does not resume."""
    if config.run.result_file and not config.run.resume and (epoch := peek(config)[0]):
        state = f"{path(config)} holds epoch {epoch} of an interrupted run: RESUME=1 (rn50 run --resume)"
        yield f"{state} goes on from there; else it stays until a checkpoint of this run is as far"


def refuse_impossible(config: Config) -> None:
    """Raise UserError if CHECKPOINT_EPOCHS asks for checkpoints that cannot be written: there is no log file
    beside which to write them, or their name belongs to another file or to a checkpoint of another
    configuration."""
    if config.run.checkpoint_epochs:
        if not config.run.result_file:
            subject = f"CHECKPOINT_EPOCHS={config.run.checkpoint_epochs}"
            problem = "checkpoints are saved beside the log, which has no file"
            raise UserError(subject, problem, "set RESULT_FILE")
        files.refuse_to_replace(path(config), files.CHECKPOINT, remedy="set another RESULT_FILE")
        _refuse_other_configuration(config, *peek(config))


def _refuse_other_configuration(config: Config, epoch: int, sha256: str) -> None:
    """Raise UserError unless a checkpoint is of ``config``. ``epoch`` is that of the checkpoint, and
    ``sha256`` the hash of its configuration."""
    if sha256 != config.sha256:
        problem = f"holds epoch {epoch} of an interrupted run of another configuration"
        raise UserError(path(config), problem, "set its variables and RESUME=1, or move it away")


def seed_after(seed: int, epoch: int) -> int:
    """Return the seed with which the input pipeline starts after the checkpoint of ``epoch``. ``seed`` is
    that of the run."""
    return int(np.random.default_rng((seed, epoch)).integers(LARGEST_SEED))


def write(config: Config, rank: Rank, seed: int, epoch: int) -> None:
    """Write the state after ``epoch``, and restart the input pipeline. All ranks call it; rank 0 writes the
    file.

    A checkpoint of an earlier epoch is replaced. A checkpoint of a later epoch, which an interrupted run has
    left, is kept. Raises UserError if the file cannot be written.
    """
    communicator, arrays = rank.communicator, {**rank.weights(), **rank.state()}
    arrays.update(_statistics_of_ranks(arrays, communicator))
    if communicator.rank == 0 and epoch >= peek(config)[0]:
        facts = {
            "file": files.MARK,  # so that a later checkpoint may replace this one
            "configuration": config.sha256,
            "seed": str(seed),
            "epoch": str(epoch),
            "precision": rank.precision.name,
        }
        remedy = "free the disk, or set another RESULT_FILE"
        files.write(path(config), format_.save(arrays, facts), files.OURS, remedy)
    rank.begin_after(epoch, seed_after(seed, epoch))


def read(config: Config) -> Checkpoint | None:
    """Return the checkpoint from which a run of ``config`` resumes. Return None without RESUME=1, without a
    log file, and if there is no checkpoint.

    Raises UserError if the file is not a checkpoint of this configuration.
    """
    if not config.run.resume or not config.run.result_file:
        return None
    file = path(config)
    try:
        with _opened(file) as opened:
            facts = opened.metadata() or {}
            _refuse_other_configuration(config, int(facts["epoch"]), facts["configuration"])
            _refuse_impossible_facts(facts, config)
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 not a mapping
    except files.MissingError:
        return None
    except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(file, f"no checkpoint ({error})", _REMEDY) from None
    weights_file.refuse_impossible(file, arrays, _REMEDY)
    return Checkpoint(file, int(facts["epoch"]), int(facts["seed"]), facts["precision"], arrays)


def _refuse_impossible_facts(facts: Mapping[str, str], config: Config) -> None:
    """Raise ValueError unless a run of ``config`` could have saved the epoch, seed and precision in
    ``facts``, which are those of a checkpoint. Raise KeyError if one of the three is missing."""
    run, last_epoch = config.run, config.evaluation_epochs[-1]
    if not 1 <= int(facts["epoch"]) < last_epoch:
        raise ValueError(f"epoch {excerpt(facts['epoch'])}, of a run that ends with {last_epoch}")
    if not SEED.holds(int(facts["seed"])):
        raise ValueError(f"seed {excerpt(facts['seed'])}, which {SEED.text}")
    possible = frameworks.traits(run.framework).precisions[run.device]
    if facts["precision"] not in (possible if run.precision == "auto" else (run.precision,)):
        raise ValueError(f"precision {excerpt(facts['precision'])}, in which this run does not train")


def restore(checkpoint: Checkpoint, rank: Rank) -> None:
    """Set weights and state of a rank to those of a checkpoint. Called after the warm-up.

    Raises UserError if the checkpoint is of another network.
    """
    arrays, number = checkpoint.arrays, rank.communicator.rank

    def saved(name: str, like: np.ndarray) -> np.ndarray:
        """Return the array ``name`` of this rank in the checkpoint, of the shape and type of ``like``."""
        array = arrays.get(f"rank{number}/{name}", arrays.get(name))
        if array is None or array.shape != like.shape or array.dtype != like.dtype:
            raise UserError(checkpoint.file, f"no checkpoint of this network (it lacks {name})", _REMEDY)
        return array

    weights = {name: saved(name, like) for name, like in rank.weights().items()}
    state = {name: saved(name, like) for name, like in rank.state().items()}
    rank.assign(weights)
    rank.assign_state(state)


def remove(config: Config) -> None:
    """Remove the checkpoint of a finished run."""
    with contextlib.suppress(OSError):
        path(config).unlink()


def _statistics_of_ranks(
    of_rank: Mapping[str, np.ndarray], communicator: Communicator
) -> dict[str, np.ndarray]:
    """Return the running statistics of all ranks but rank 0, and their averages, by their names in
    ``Checkpoint.arrays``. ``of_rank`` are all arrays of this rank. All ranks call it."""
    statistics = {}
    for name in (name for name in of_rank if _RUNNING in name):
        # A communicator sums integers only. So every rank writes the bits of its numbers into its own row of
        # a table of zeros, and the sum of the tables has the bits of all ranks.
        table = np.zeros((communicator.size, of_rank[name].size), np.int64)
        table[communicator.rank] = of_rank[name].reshape(-1).view(np.int32)
        bits = all_reduce.sum_in_pieces(communicator, table.reshape(-1)).astype(np.int32)
        arrays = bits.view(np.float32).reshape(communicator.size, *of_rank[name].shape)
        statistics.update({f"rank{rank}/{name}": arrays[rank] for rank in range(1, communicator.size)})
    return statistics
