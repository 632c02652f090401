"""The configuration of a run: environment variables become a ``Config`` of frozen dataclasses, once.

Every verb that runs or measures gets a ``Config`` from ``named.read``, which sources the file and calls
``from_environment``; each rank reads its own from the environment that its launcher gave it.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from rn50.benchmark import recipe, rules, schedule
from rn50.benchmark.recipe import Recipe
from rn50.errors import UserError, UserErrors, did_you_mean, excerpt
from rn50.process import environment
from rn50.settings import fields, relations
from rn50.settings.document import Document
from rn50.settings.fields import KNOWN_NAMES, RUNS_OWN, SECTIONS, variables
from rn50.settings.variables import FIXED, LIBRARIES, Variable


@dataclasses.dataclass(frozen=True)
class Config:
    """Configuration of a run: four sections of values, and the environment that they were read from."""

    hyperparameters: fields.Hyperparameters
    run: fields.Run
    data: fields.Data
    input_pipeline: fields.InputPipeline
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False, compare=False)
    """All variables of the environment, also those that fill no field; the processes of the run inherit them.
    They may include secrets, so they are neither shown nor saved."""
    document: Document | None = dataclasses.field(default=None, repr=False, compare=False)
    """The configuration file that was sourced; None in a rank, which gets its variables from its launcher."""

    def replaced(self, **values: Any) -> "Config":
        """Return the configuration with other values of variables, given by name: ``LR=1``. Variables of
        libraries may be among them. None unsets a variable. Raises UserError if the new configuration cannot
        be run."""
        environ = {name: text for name, text in self.environment.items() if name not in values}
        texts = {name: Variable.write(value) for name, value in values.items() if value is not None}
        return from_environment({**environ, **texts}, self.document)

    def environ(self) -> dict[str, str]:
        """Return a copy of the environment, for a process of the run."""
        return dict(self.environment)

    @property
    def ranks(self) -> int:
        """Number of processes on all machines, one per device."""
        return self.run.ranks_per_node * self.run.nodes

    @property
    def to_one_rank(self) -> str:
        """Settings, for the remedy of an error, that make this a run of one rank, which needs no Horovod: as
        "DGXNGPU=1 and DGXNNODES=1"."""
        counts = {"DGXNGPU": self.run.ranks_per_node, "DGXNNODES": self.run.nodes}
        return " and ".join(f"{name}=1" for name, count in counts.items() if count > 1) or "LAUNCHER=auto"

    @property
    def global_batch_size(self) -> int:
        """Images per step on all ranks together."""
        return self.hyperparameters.batch_size * self.ranks

    @property
    def epoch_samples(self) -> int:
        """Images that an epoch trains on: the training set, or the images of BENCHMARK_STEPS steps."""
        steps, train_samples = self.run.benchmark_steps, self.data.train_samples
        return train_samples if steps is None else min(train_samples, steps * self.global_batch_size)

    @property
    def evaluation_epochs(self) -> list[int]:
        """Epochs after which a run evaluates, counted from 1. A run that misses the target ends after the
        last of them."""
        h = self.hyperparameters
        return schedule.evaluation_epochs(h.num_epochs, h.eval_offset, h.eval_period, self.run.target)

    @property
    def image_sizes(self) -> list[int]:
        """Sides of the training images, in pixels, each once, in the order of the epochs."""
        sizes = schedule.image_sizes(self.hyperparameters.image_sizes, self.data.image_size)
        return list(dict.fromkeys(size for size, _ in sizes))

    @property
    def first_bias(self) -> float:
        """Initial value of the classifier's biases. With LOSS=binary it is -ln(classes), so that the sigmoid
        of every class begins near 1 / classes."""
        return -math.log(self.data.classes) if self.hyperparameters.loss == "binary" else 0.0

    def image_size_of(self, epoch: int) -> int:
        """Return the side of the training images of ``epoch``, in pixels."""
        sizes = schedule.image_sizes(self.hyperparameters.image_sizes, self.data.image_size)
        return [size for size, first_epoch in sizes if first_epoch <= epoch][-1]

    @property
    def recipe(self) -> Recipe:
        """The hyperparameters that a run logs."""
        values = {**recipe.FIXED, "gradient_accumulation_steps": 1, **vars(self.hyperparameters)}
        return recipe.of_configuration(values, self.ranks)

    @property
    def departures(self) -> dict[str, str]:
        """Variable whose value breaks a rule of the closed division -> the rule."""
        broken = recipe.departures(self.recipe)
        return {variable.name: broken[field] for _, field, variable in variables() if field in broken}

    @property
    def is_imagenet(self) -> bool:
        """True if the run is the complete task of the benchmark. If not, every output has the label
        ``rules.NOT_A_RESULT``."""
        return rules.NOT_A_RESULT not in self.labels

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of ``rules.LABELS`` that apply to the run; every output of the run shows them."""
        return rules.labels(dataclasses.asdict(self.data), dataclasses.asdict(self.run))

    @property
    def sha256(self) -> str:
        """SHA-256 of the values that all runs of a result must share, which identifies the configuration."""
        values = self.to_dict()
        for name in RUNS_OWN:
            del values["run"][name]
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def as_environment(self) -> dict[str, str]:
        """Return variable -> text, for all variables that have a value. ``from_environment`` makes an equal
        configuration of them."""
        sections = self.to_dict()
        values = {variable.name: sections[section][field] for section, field, variable in variables()}
        return {name: Variable.write(value) for name, value in values.items() if value is not None}

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return section -> field -> value, to save as JSON beside a result file."""
        return {section: dataclasses.asdict(getattr(self, section)) for section in SECTIONS}


def from_environment(environ: Mapping[str, str] | None = None, document: Document | None = None) -> Config:
    """Return the configuration that the variables ``environ`` describe, by default the environment of this
    process.

    ``document`` is the file that a shell has sourced into ``environ``. In a file of this repository an
    unknown name is an error. Raises UserError with one line for every variable that is missing, unknown or
    impossible, or whose value the closed division forbids while SUBMISSION_DIVISION is closed.
    """
    environ = environment() if environ is None else environ
    # For the messages: the name of the configuration file, if there is one.
    file = environ.get("CONFIG_FILE") or (document and document.path)
    problems = []
    for name in document.unknown(KNOWN_NAMES) if document and document.is_ours else ():
        remedy = did_you_mean(name, KNOWN_NAMES) or "remove it"
        problems.append(f"{name} in {file} is not a known variable; {remedy}")
    # These variables name what every run does anyway, so another value is an error.
    for name, fixed in FIXED.items():
        if environ.get(name) and not re.fullmatch(fixed.pattern, environ[name]):
            problems.append(f"{name}={excerpt(environ[name])} {fixed.refusal}")
    for name, parse in LIBRARIES.items():
        try:
            # The run does not use the value, only a library does. A variable that is not set is parsed as
            # "1", which is no error.
            parse(environ.get(name) or "1")
        except ValueError as error:
            problems.append(f"{name}={excerpt(environ[name])} {error}; correct or unset it")
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    values: dict[str, Any] = {}
    for section, field, variable in variables():
        name, text = variable.given(environ)
        hint = f"for example {name}={variable.example} ({variable.meaning})"
        try:
            # The values of the variables before this one decide whether it is read.
            value = variable.value(text, values)
        except ValueError as error:
            problems.append(f"{name}={excerpt(str(text))} {error}; {hint}")
            continue
        if value is dataclasses.MISSING:
            problem = f"{name} is not set and has no default, because convergence depends on it"
            problems.append(f"{problem}; set it in {file or 'the configuration file'}, {hint}")
            continue
        sections[section][field] = values[variable.name] = value
    problems += relations.broken(values)
    if problems:
        raise UserErrors(*map(UserError, problems))
    records = {section: SECTIONS[section](**by_field) for section, by_field in sections.items()}
    config = Config(**records, environment=dict(environ), document=document)
    if config.run.division == "closed" and config.departures:
        remedy = "change it, or set SUBMISSION_DIVISION=open"
        texts = config.as_environment()
        broken = config.departures.items()
        raise UserErrors(*(UserError(f"{name}={texts[name]}", rule, remedy) for name, rule in broken))
    return config


def of_document(document: Document) -> Config:
    """Return the configuration of a file in an empty environment, without starting a shell. Raises UserError
    if it cannot be run."""
    try:
        return from_environment(document.assigned.values, document)
    except UserError as error:
        raise UserErrors(*(UserError(document.path, line) for line in error.lines)) from None
