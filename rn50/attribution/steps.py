"""Groups of settings that two configurations differ in, and the points on the way from one to the other."""

from collections.abc import Mapping
from typing import NamedTuple

from rn50.errors import UserError
from rn50.settings.config import from_environment
from rn50.settings.fields import variables
from rn50.settings.libraries import PASSED_THROUGH

HYPERPARAMETERS, INPUT, COMMUNICATION = "hyperparameters", "input", "ranks and communication"
PRECISION, CONTAINER = "framework, precision and step", "data container"
GROUPS = (HYPERPARAMETERS, INPUT, COMMUNICATION, PRECISION, CONTAINER)
"""All groups, in the order in which the way is gone first; then it is gone in the reverse order."""
_OF_RUN = {
    **dict.fromkeys(("ranks_per_node", "nodes", "launcher", "hosts", "gradient_groups"), COMMUNICATION),
    **dict.fromkeys(("framework", "device", "precision", "step_mode"), PRECISION),
}
_OF_SECTION = {"hyperparameters": HYPERPARAMETERS, "input_pipeline": INPUT}
_OF_TASK = ("target", "benchmark_steps", "initial_weights", "sparsity", "quantization")
_OF_DATA = {"folder": CONTAINER, "crop_area_min": HYPERPARAMETERS}
CHANGE_EPOCHS = frozenset({HYPERPARAMETERS, COMMUNICATION, PRECISION})
"""Groups after which the epochs to the target are counted again: batch norm is over a rank's images, and
roundings differ. Input libraries make the same images."""
Point = frozenset[str]
"""The groups whose settings are those of the second configuration."""


class Way(NamedTuple):
    """Two configurations, and what differs between them."""

    first: Mapping[str, str]
    """Environment of a run of the first."""
    second: Mapping[str, str]
    differences: dict[str, dict[str, tuple[str, str]]]
    """Group -> variable -> value of the first, value of the second, in the order of ``GROUPS``."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that differ."""
        return tuple(self.differences)

    def settings(self, group: str) -> list[str]:
        """Return NAME before -> after of a group's variables."""
        return [f"{name} {before} -> {after}" for name, (before, after) in self.differences[group].items()]

    @property
    def orders(self) -> tuple[tuple[str, ...], ...]:
        """The orders in which the groups are changed: one and its reverse."""
        return (self.groups,) if len(self.groups) < 2 else (self.groups, self.groups[::-1])

    @property
    def points(self) -> list[Point]:
        """Every point of the orders, each once, both ends included."""
        ways = [frozenset(order[:length]) for order in self.orders for length in range(len(order) + 1)]
        return list(dict.fromkeys(ways))

    def environment(self, point: Point) -> dict[str, str]:
        """Return the environment of a run at a point. The global batch size belongs to the hyperparameters,
        and is divided among the ranks of the point."""
        changed = [name for group in point for name in self.differences[group]]
        environ = {name: text for name, text in self.first.items() if name not in ("CONFIG_FILE", *changed)}
        environ |= {name: self.second[name] for name in changed if name in self.second}
        total = from_environment(self.second if HYPERPARAMETERS in point else self.first).global_batch_size
        ranks = from_environment(self.second if COMMUNICATION in point else self.first).ranks
        if total % ranks:
            problem = (
                f"the global batch size of {total} cannot be divided among the {ranks} ranks of the other"
            )
            raise UserError(name_of(point), problem, "give both the same number of ranks")
        environ["BATCHSIZE"] = str(total // ranks)
        return environ


def name_of(point: Point) -> str:
    """Return a point in words, in the order of ``GROUPS``."""
    return " + ".join(group for group in GROUPS if group in point) or "as it is"


def between(first: Mapping[str, str], second: Mapping[str, str]) -> Way:
    """Return the way between two configurations, given as environments of their runs.

    Raises UserError if they are of different tasks, do not differ, or a point between them cannot be run.
    """
    one, other = from_environment(first), from_environment(second)
    differences: dict[str, dict[str, tuple[str, str]]] = {}
    for section, field, variable in variables():
        before, after = (getattr(getattr(config, section), field) for config in (one, other))
        group = _OF_SECTION.get(section) or _OF_RUN.get(field) or _OF_DATA.get(field)
        is_named = section == "run" and group is None and field not in _OF_TASK
        if before == after or field == "batch_size" or is_named:
            continue
        texts = tuple("not set" if value is None else variable.write(value) for value in (before, after))
        if group is None:
            problem = f"{texts[0]} in the first and {texts[1]} in the second: another task"
            raise UserError(variable.name, problem, "give two configurations of one task")
        differences.setdefault(group, {})[variable.name] = (texts[0], texts[1])
    if one.global_batch_size != other.global_batch_size:
        sizes = str(one.global_batch_size), str(other.global_batch_size)
        differences.setdefault(HYPERPARAMETERS, {})["global batch size"] = sizes
    for name in sorted({*first, *second}):
        before, after = first.get(name, "not set"), second.get(name, "not set")
        if name.startswith(PASSED_THROUGH) and before != after:
            differences.setdefault(COMMUNICATION, {})[name] = (before, after)
    if not differences:
        raise UserError("the configurations", "do not differ in anything that a run reads", "give two others")
    way = Way(first, second, {group: differences[group] for group in GROUPS if group in differences})
    for point in way.points:
        from_environment(way.environment(point))
    return way
