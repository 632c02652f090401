"""The JSON file beside a log, which says how the run was made: ``result_N.json`` beside ``result_N.txt``.

``timed_run.py`` writes it on rank 0 before the clock starts, and adds what the run finds out later.
``rn50.results.sidecar`` reads it.
"""

import json
import pathlib
import platform
from typing import Any

import rn50
from rn50 import files
from rn50.errors import UserError
from rn50.machine import description, software
from rn50.process import environment
from rn50.results import sidecar
from rn50.run import input_library
from rn50.settings.config import Config
from rn50.settings.document import Document
from rn50.settings.libraries import is_passed_through

RUNS = "RN50_RUNS"
"""Environment variable in which ``run_experiments.sh`` gives its runs the number of runs of the campaign."""
_VERSION = "rn50"
"""Name under which the file has the version of rn50. A file without it was not saved by a run."""
_REMEDY = "move it away or set another RESULT_FILE"


def save(config: Config, seed: int, result_file: pathlib.Path, resumed_after: int | None = None) -> None:
    """Write the JSON file beside ``result_file``: resolved configuration, seed, code version, machine and
    package versions. ``resumed_after`` is the epoch of the checkpoint that the run resumes from, if any.

    ``variables`` and ``environment`` make a configuration file that repeats this run. ``system`` is the
    description of the machine for ``rn50 package``, which often runs on another machine.

    Raises UserError if the file cannot be written. Also raises it if the file exists and no run saved it, or
    the run of another log saved it.
    """
    target = result_file.with_suffix(".json")
    _refuse_file_of_other_log(target, result_file.name)
    runs = environment().get(RUNS)
    facts = {
        "seed": seed,
        **({"runs": runs} if runs else {}),
        **({} if resumed_after is None else {"resumed_after": resumed_after}),
        "config": config.to_dict(),
        "variables": config.as_environment(),
        "environment": _passed_through(),
        _VERSION: rn50.__version__,
        "commit": software.commit(),
        "python": platform.python_version(),
        "input_library": input_library.chosen(config),  # INPUT_LIBRARY=auto depends on the machine
        "machine": _machine(),
        "system": description.read(),
        "packages": software.packages(),
    }
    _write(target, facts)


def add(result_file: pathlib.Path, facts: dict[str, Any]) -> None:
    """Add facts, which became known during the run, to the file that ``save`` wrote."""
    target = result_file.with_suffix(".json")
    _write(target, {**files.read_json(target), **facts})


def earlier_precision(config: Config) -> str | None:
    """Return the precision of an earlier run of this configuration on this machine, if the run's log is in
    the folder of RESULT_FILE; else None. PRECISION=auto takes that precision again."""
    from rn50.results import counted  # not at the top: it takes 50 ms, which most ranks need not spend

    if config.run.result_file is None:
        return None
    values = config.as_environment()
    # ``shared`` leaves out the variables that differ from run to run, such as SEED. The folder of the data
    # decides no precision either.
    ours = {**counted.shared(values, values), "DATADIR": ""}
    for log in sorted(pathlib.Path(config.run.result_file).parent.glob("result_*.txt")):
        saved = sidecar.read(log)
        theirs = {**counted.shared(saved.get("variables", {}), values), "DATADIR": ""}
        if theirs == ours and saved.get("machine") == _machine() and "precision" in saved:
            return saved["precision"]
    return None


def _machine() -> str:
    """Return host name and operating system of this machine."""
    return f"{platform.node()}: {platform.platform()}"


def _refuse_file_of_other_log(target: pathlib.Path, log: str) -> None:
    """Raise UserError if ``target`` exists, unless it was saved by a run whose log has the name ``log`` or no
    longer exists. Two logs that differ in their suffix alone, like result_0.txt and result_0.log, would share
    one ``target``."""
    try:
        saved = files.read_json(target, remedy=_REMEDY)
    except files.MissingError:
        return
    if not isinstance(saved, dict) or _VERSION not in saved:
        raise UserError(target, "exists, and no run has saved it", _REMEDY)
    # Suffix of the log; "" if the file does not have the structure that ``sidecar.read`` checks.
    suffix = pathlib.Path(str(sidecar.section(sidecar.read(target), "run").get("result_file"))).suffix
    saved_with = target.with_suffix(suffix)
    if suffix and saved_with.name != log and saved_with.exists():
        raise UserError(target, f"was saved with {saved_with.name}", _REMEDY)


def _write(target: pathlib.Path, facts: dict[str, Any]) -> None:
    """Write ``facts`` as JSON in place of ``target``."""
    text = json.dumps(facts, indent=1, sort_keys=True) + "\n"
    files.write(target, text, files.ANY, "free the disk and run again")


def _passed_through() -> dict[str, str]:
    """Return name -> value of the variables that the configuration file sets for libraries, such as NCCL's.
    Variables that only a launcher sets are left out."""
    environ = environment()
    file = environ.get("CONFIG_FILE")
    names = Document(pathlib.Path(file)).names if file else []
    return {name: environ[name] for name in names if is_passed_through(name) and name in environ}
