"""The command line: argument parsing only, one line of work per verb."""

from rn50.cli import data, hyperparameters, results, run, speed
from rn50.cli.group import main

for _verb in (
    data.demo_data, data.pack, data.verify,
    run.launch_run, run.train, run.doctor, run.config_group,
    speed.bench, speed.profile_training, speed.tune,
    results.score_results, results.check_results, results.report_results, results.compare_results, results.package_results,
    hyperparameters.plan, hyperparameters.borrow, hyperparameters.search,
):  # fmt: skip
    main.add_command(_verb)

__all__ = ["main"]
