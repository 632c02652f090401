"""Make sure that all ranks use the same seed, checkpoint, input library and data.

``timed_run.py`` calls each function on every rank. A rank that differs raises UserError, which ends the job.
"""

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
    """Return the seed of the run, the same on all ranks: SEED (``configured``), else a random number that
    rank 0 draws."""
    seed = configured if configured is not None else secrets.randbelow(2**31 - 1) + 1
    return total(communicator, seed if communicator.rank == 0 else 0)


def on_beginning(start: Beginning, communicator: Communicator) -> None:
    """Raise UserError unless the checkpoints of all ranks are of the same epoch, which is 0 for none."""
    problem = f"this rank has a checkpoint of epoch {start.epoch}, and not every other"
    remedy = "let RESULT_FILE lie in a folder that all machines share"
    _refuse_different(communicator, start.epoch, UserError("RESUME=1", problem, remedy))


def on_input_library(config: Config, communicator: Communicator) -> None:
    """Raise UserError if INPUT_LIBRARY=auto chooses different libraries on the ranks, because each library
    splits and orders the data differently."""
    if config.input_pipeline.library == "auto":
        library = input_library.chosen(config)
        problem = f"it is {library} on this rank, and not on every other"
        remedy = "install the same packages on every machine, or set INPUT_LIBRARY"
        error = UserError("INPUT_LIBRARY=auto", problem, remedy)
        _refuse_different(communicator, zlib.crc32(library.encode()), error)


def on_certificate(config: Config, communicator: Communicator, display: Display) -> dict[str, str | int]:
    """Return what the log says of the data: name -> SHA-256 of the certificate and of the data set, the same
    on all ranks, if the data have a certificate; short_side, if the images were resized. Show a remark if
    they were resized or have no certificate; add a summary of the certificate to the run's JSON file.

    Raises UserError if the certificate does not match the configuration, or the ranks' certificates differ,
    and if the closed division refuses the data.
    """
    folder, certified = config.data.folder, certificate.check(config)
    sha256 = certified.sha256 if certified else "none"
    number = int(sha256[:8], 16) if certified else 0  # a communicator sums int64, so 32 bits have to do
    problem = f"the ranks read data of different certificates, this one {sha256}"
    _refuse_different(communicator, number, UserError(folder, problem, "give every machine the same data"))
    facts: dict[str, str | int] = {}
    if pixels := certificate.expected(pathlib.Path(folder)).short_side:
        facts["short_side"] = pixels
        display.remark(f"{folder}: images resized to a shorter side of {pixels}, open division only")
    if certified is None:
        remedy = f"rn50 verify {folder} looks at every image and writes it"
        display.remark(f"no certificate.json in {folder}; {remedy}")
        return facts
    if config.run.result_file and communicator.rank == 0:
        provenance.add(pathlib.Path(config.run.result_file), {"data certificate": certified.summary()})
    facts.update(certificate_sha256=certified.sha256, data_set_sha256=str(certified.content["set_sha256"]))
    return facts


def _refuse_different(communicator: Communicator, number: int, error: UserError) -> None:
    """Raise ``error`` if the numbers of the ranks differ. Each rank compares its number with the mean of all,
    so one rank at least raises it, which ends the job."""
    if total(communicator, number) != number * communicator.size:
        raise error
