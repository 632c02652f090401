"""Report before a run what would leave it without a result, or keep its results out of a submission."""

from collections.abc import Iterator

from rn50.doctor.diagnosis import OK, WARNING, Diagnosis
from rn50.settings.config import Config
from rn50.settings.variables import UNNAMED_ORGANISATION


def diagnoses(config: Config | None, commit: str | None) -> Iterator[Diagnosis]:
    """Yield the diagnoses. ``commit`` is the code's, with "-dirty" appended if files differ."""
    if config is not None and config.run.benchmark_steps is not None:
        text = f"an epoch ends after {config.run.benchmark_steps} steps, so the runs give no result"
        yield Diagnosis(WARNING, "BENCHMARK_STEPS", text, "unset it")
    if config is None or not config.is_imagenet:
        return
    if config.run.organisation == UNNAMED_ORGANISATION:
        text = "not set, so the logs name nobody and rn50 package refuses them"
        yield Diagnosis(WARNING, "SUBMISSION_ORG", text, "set SUBMISSION_ORG to the name of the submitter")
    if commit and not commit.endswith("-dirty"):
        yield Diagnosis(OK, "code", f"commit {commit}")
        return
    problem, remedy = "not in a git checkout", "run in a git checkout, or in an image of one (make image)"
    if commit:
        problem, remedy = "some changes are not committed", "commit them first"
    text = f"{problem}, so rn50 package cannot tell what ran and refuses the results"
    yield Diagnosis(WARNING, "code", text, remedy)
