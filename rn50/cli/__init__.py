"""The command line: argument parsing only, one line of work per verb."""

from rn50.cli import data, desk, hyperparameters, measure, run
from rn50.cli.group import main

for _verb in (
    data.demo_data, data.pack, data.verify,
    run.launch, run.train, run.doctor, run.config_group,
    measure.bench, measure.profile, measure.tune,
    desk.score, desk.check, desk.report, desk.compare, desk.package,
    hyperparameters.plan, hyperparameters.borrow, hyperparameters.search,
):  # fmt: skip
    main.add_command(_verb)

__all__ = ["main"]
