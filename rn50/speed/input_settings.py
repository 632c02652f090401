"""Settings of the input pipeline that affect speed, and the values of each that ``tuning.py`` tries."""

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
"""Field of ``InputPipeline`` -> its variable."""


class Setting(NamedTuple):
    """A field of ``InputPipeline``, and the values to try, in ascending order."""

    field: str
    values: tuple[Any, ...]

    def directions(self, current: Any) -> list[list[Any]]:
        """Return two lists: the values above ``current`` in ascending order, and the values below it in
        descending order."""
        above = [value for value in self.values if value > current]
        return [above, [value for value in reversed(self.values) if value < current]]


def to_try(config: Config, cores: int) -> list[Setting]:
    """Return the settings that have an effect on the device of ``config``. Threads go up to ``cores``, the
    number of a rank's cores.

    The setting with the greatest effect comes first, because the later settings are measured with its best
    value. Preallocated memory is not tuned, because it affects hardly more than the first batches.
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
    whole_images = changed(config, {"roi_decode": False})  # a cache has an effect only on whole images

    def has_effect(setting: Setting) -> bool:
        # Leave out 0 and False, which turn a feature off: ``why_no_effect`` counts that as an effect even on
        # a device that does not have the feature.
        candidates = (changed(whole_images, {setting.field: value}) for value in setting.values if value)
        return any(in_effect(candidate, setting) for candidate in candidates)

    return list(filter(has_effect, settings))


def together(config: Config) -> list[dict[str, Any]]:
    """Return changes of several fields that may be faster together though no single one is: a cache of
    decoded images needs DALI_ROI_DECODE=0, which alone is slower."""
    cached = {"roi_decode": False, "cache_size_mb": 4096}
    return [cached] if config.run.device == "gpu" and config.input_pipeline.roi_decode else []


def changed(config: Config, values: Mapping[str, Any]) -> Config:
    """Return ``config`` with other values of fields of its input pipeline."""
    return dataclasses.replace(config, input_pipeline=dataclasses.replace(config.input_pipeline, **values))


def in_effect(config: Config, setting: Setting) -> bool:
    """Return True if the value of a setting in ``config`` has an effect there."""
    return show.why_no_effect(NAMES[setting.field], config) is None


def changes(before: Config, after: Config) -> dict[str, tuple[str, str]]:
    """Return variable -> (old text, new text), for every variable of the input pipeline that differs between
    the two configurations."""
    old, new = before.as_environment(), after.as_environment()
    return {name: (old[name], new[name]) for name in NAMES.values() if old[name] != new[name]}


def described(values: Mapping[str, Any]) -> str:
    """Return the values of fields as NAME=value, in one line."""
    return " ".join(f"{NAMES[field]}={Variable.write(value)}" for field, value in values.items())
