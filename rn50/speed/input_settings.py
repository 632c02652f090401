"""Settings of the input pipeline that affect speed, and the values that are worth a trial."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from rn50.settings import show
from rn50.settings.config import Config
from rn50.settings.fields import variables
from rn50.settings.variables import Variable

NAMES: dict[str, str] = {
    field: variable.name for section, field, variable in variables() if section == "input_pipeline"
}
"""Field of the input pipeline -> its variable."""


class Setting(NamedTuple):
    """Setting of the input pipeline: a field and its values in order. A search climbs along them as long as
    they get better."""

    field: str
    values: tuple[Any, ...]

    def directions(self, current: Any) -> list[list[Any]]:
        """Return the values above ``current``, nearest first, and those below it, nearest first."""
        above = [value for value in self.values if value > current]
        return [above, [value for value in reversed(self.values) if value < current]]


def of(config: Config, cores: int) -> list[Setting]:
    """Return the settings in effect on the device of ``config``. Threads go up to ``cores``, the cores of a
    rank.

    The setting with the greatest effect comes first, because those after it are measured with it.
    Preallocated memory is not tuned, because it hardly affects any but the first batches.
    """
    threads = tuple(value for value in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32) if value <= cores)
    settings = [
        Setting("roi_decode", (False, True)),
        Setting("threads", threads),
        Setting("hw_decoder_load", (0.0, 0.25, 0.5, 0.65, 0.8, 1.0)),
        Setting("cache_size_mb", (0, 1024, 4096, 16384)),
        Setting("prefetch_queue_depth", (1, 2, 3, 4, 6, 8, 12, 16)),
        Setting("dont_use_mmap", (False, True)),
    ]
    whole = turned(config, {"roi_decode": False})

    def matters(setting: Setting) -> bool:
        changed = (turned(whole, {setting.field: value}) for value in setting.values if value)
        return any(in_effect(candidate, setting) for candidate in changed)

    return list(filter(matters, settings))


def together(config: Config) -> list[dict[str, Any]]:
    """Return values that may help together though neither does alone: a cache needs whole images, which cost
    time without it."""
    cached = {"roi_decode": False, "cache_size_mb": 4096}
    useful = config.run.device == "gpu" and config.input_pipeline.roi_decode
    return [cached] if useful else []


def turned(config: Config, values: Mapping[str, Any]) -> Config:
    """Return ``config`` with these values of fields of its input pipeline."""
    return dataclasses.replace(config, input_pipeline=dataclasses.replace(config.input_pipeline, **values))


def in_effect(config: Config, setting: Setting) -> bool:
    """Return whether the value that ``config`` has for a setting is in effect."""
    return show.why_no_effect(NAMES[setting.field], config) is None


def changes(before: Config, after: Config) -> dict[str, tuple[str, str]]:
    """Return the texts, old and new, of every variable of the input pipeline that differs in ``after``."""
    old, new = before.as_environment(), after.as_environment()
    return {name: (old[name], new[name]) for name in NAMES.values() if old[name] != new[name]}


def described(values: Mapping[str, Any]) -> str:
    """Return fields as NAME=value, as in a file."""
    return " ".join(f"{NAMES[field]}={Variable.write(value)}" for field, value in values.items())
