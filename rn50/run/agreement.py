"""Agree with the other ranks on what all need alike: seed, checkpoint, input library and data."""

import pathlib
import secrets
import zlib

from rn50.data.certification import certificate
from rn50.errors import UserError
from rn50.run import input_library, provenance
from rn50.run.all_reduce import total
from rn50.run.beginning import Beginning
from rn50.run.display import Display
from rn50.run.engine import Communicator
from rn50.settings.config import Config


def on_seed(configured: int | None, communicator: Communicator) -> int:
    """Return the seed of the run, the same on all ranks: the configured one, else a random one of rank 0."""
    seed = configured if configured is not None else secrets.randbelow(2**31 - 1) + 1
    return total(communicator, seed if communicator.rank == 0 else 0)


def on_beginning(begins: Beginning, communicator: Communicator) -> None:
    """Raise UserError unless all ranks found the same checkpoint."""
    problem = f"this rank has a checkpoint of epoch {begins.epoch}, and not every other"
    remedy = "let RESULT_FILE lie in a folder that all machines share"
    _refuse_different(communicator, begins.epoch, UserError("RESUME=1", problem, remedy))


def on_input_library(config: Config, communicator: Communicator) -> None:
    """Raise UserError if INPUT_LIBRARY=auto is another library on another rank, because each library splits
    and orders the data differently."""
    if config.input_pipeline.library == "auto":
        library = input_library.chosen(config)
        problem = f"it is {library} on this rank, and not on every other"
        remedy = "install the same packages on every machine, or set INPUT_LIBRARY"
        error = UserError("INPUT_LIBRARY=auto", problem, remedy)
        _refuse_different(communicator, zlib.crc32(library.encode()), error)


def on_certificate(config: Config, communicator: Communicator, display: Display) -> dict[str, str] | None:
    """Return the hashes that certify the data, the same on all ranks; None if no rank's data have a
    certificate.

    Raises UserError if the certificate does not match the configuration, or the ranks' certificates differ.
    """
    folder, certified = config.data.folder, certificate.check(config)
    shown, digest = (certified.sha256, int(certified.sha256[:8], 16)) if certified else ("none", 0)
    problem = f"the ranks read data of different certificates, this one {shown}"
    _refuse_different(communicator, digest, UserError(folder, problem, "give every machine the same data"))
    if certified is None:
        remedy = f"rn50 verify {folder} looks at every image and writes it"
        display.remark(f"no certificate.json in {folder}; {remedy}")
        return None
    if config.run.result_file and communicator.rank == 0:
        provenance.add(pathlib.Path(config.run.result_file), {"data certificate": certified.summary()})
    return {"certificate_sha256": certified.sha256, "data_set_sha256": str(certified.content["set_sha256"])}


def _refuse_different(communicator: Communicator, number: int, error: UserError) -> None:
    """Raise ``error`` if another rank has another number. At least one of the ranks that differ raises it,
    which ends the job."""
    if total(communicator, number) != number * communicator.size:
        raise error
