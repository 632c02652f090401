"""Report before a run what would leave it without a result, or keep its results out of a submission."""

from collections.abc import Iterator

from rn50.doctor.finding import OK, WARNING, Finding
from rn50.settings.config import Config
from rn50.settings.variables import UNNAMED_ORGANISATION


def findings(config: Config | None, commit: str | None) -> Iterator[Finding]:
    """Yield the findings. ``commit`` is the code's, with "-dirty" appended if files differ."""
    if config is not None and config.run.benchmark_steps is not None:
        yield Finding(
            WARNING,
            "BENCHMARK_STEPS",
            f"an epoch ends after {config.run.benchmark_steps} steps, so the runs give no result",
            "unset it",
        )
    if config is None or not config.is_imagenet:
        return
    if config.run.organisation == UNNAMED_ORGANISATION:
        yield Finding(
            WARNING,
            "SUBMISSION_ORG",
            "not set, so the logs name nobody and rn50 package refuses them",
            "set SUBMISSION_ORG to the name of the submitter",
        )
    if not commit or commit.endswith("-dirty"):
        problem = "some changes are not committed" if commit else "not in a git checkout"
        yield Finding(
            WARNING,
            "code",
            f"{problem}, so rn50 package cannot tell what ran and refuses the results",
            "commit them first" if commit else "run in a git checkout, or in an image of one (make image)",
        )
    else:
        yield Finding(OK, "code", f"commit {commit}")
