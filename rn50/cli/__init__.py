"""The command line: argument parsing only, one line of work per verb."""

from rn50.cli import after_training, data, hyperparameters, results, run, speed
from rn50.cli.group import main

main.add_section(
    "Set up and data", run.doctor, run.config_group, data.demo_data, data.pack, data.unpack, data.verify
)
main.add_section("Run", run.run_campaign, run.watch_campaign)
main.add_section("Speed", speed.bench, speed.tune, speed.profile_training)
main.add_section("Hyperparameters", hyperparameters.plan, hyperparameters.borrow, hyperparameters.search)
main.add_section(
    "Results and weights",
    results.score_results,
    results.check_results,
    results.report_results,
    results.compare_results,
    results.package_results,
    after_training.evaluate_weights,
    after_training.export_weights,
    after_training.quantize_model,
)
for _hidden in (run.launch_run, run.train, run.summary):
    main.add_command(_hidden)

__all__ = ["main"]
