"""Turn the messages of the official compliance checker into findings: which line, which rule, and what to
do."""

import ast
import json
import re
from collections.abc import Iterator, Sequence

from rn50.benchmark import rules
from rn50.errors import excerpt
from rn50.results.parse import TOKEN, ResultLog
from rn50.results.validity import log_rules
from rn50.results.validity.compliance import Verdict
from rn50.results.validity.findings import ERROR, WARNING, Finding

Sentence = tuple[int | None, str, str]
"""Line, message, remedy."""
_HARMLESS = "with one value, though once is right"
"""End of a message that is only a warning, also in a log that the checker refuses for another reason."""
_FORMS = (
    r"Required (\S+) occurrence of (.*?)(?: but found (\d+)(.*))?$",
    r"CHECK for '(.*?)' failed in line \d+:\n(.*?)\nfailed test: (.*?)\ncurrent context",
    r"Failed executing (?:CHECK code:\n(.*?)\n|code (.*?) )triggered by line ?:\n(.*)",
)
"""Messages on a key that is missing or repeated, on one with a value that fails, and on one that cannot be
tested."""
_REMEDIES = {
    **{key: remedy for key, (_, remedy) in log_rules.ALLOWED.items()},
    "init_start": "log init_start before init_stop and run_start",
    "init_stop": "initialise in less than 30 minutes, and log submission_division before init_stop",
    "run_start": "log run_start after init_stop",
    "run_stop": "log run_stop last, with a status in its metadata",
    "eval_accuracy": "log every evaluation with its epoch_num in the metadata, as a fraction below 1",
}


def explain(verdicts: Sequence[Verdict], log: ResultLog) -> Iterator[Finding]:
    """Yield the findings on one file from the checker's verdicts under each ruleset; equal messages become
    one finding."""
    by_sentence: dict[tuple[str, Sentence], list[str]] = {}
    for verdict in verdicts:
        sentences = list(filter(None, (_sentence(message, log) for message in verdict.messages)))
        if not verdict.ok and not sentences and not log.findings and log.reached:
            text = "the checker refuses the log and does not say why"
            sentences.append((None, text, "run the checker by hand"))
        for sentence in sentences:
            warning = verdict.ok or sentence[1].endswith(_HARMLESS)
            by_sentence.setdefault((WARNING if warning else ERROR, sentence), []).append(verdict.ruleset)
    for (severity, (line, message, remedy)), rulesets in by_sentence.items():
        rule = f"compliance checker {', '.join(dict.fromkeys(rulesets))}"
        yield Finding(severity, log.path, line, rule, message, remedy)


def _sentence(message: str, log: ResultLog) -> Sentence | None:
    """Explain a message; None for one that says what our own rules report."""
    required, check, crashed = (re.match(form, message, re.DOTALL) for form in _FORMS)
    if message.startswith("Found parsing errors:"):
        return None
    if message == "Log lines had parsing errors.":
        reported = any("not an MLPerf record" in finding for finding in log.findings)
        unreadable = "some records cannot be read by the checker", "log through mlperf_logging.mllog"
        return None if reported else (None, *unreadable)
    if message.startswith("the checker gave no verdict:"):
        remedy = "fix the records it could not take; nothing was checked"
        return None, f"the checker crashed: {_short(message.split(':', 1)[1])}", remedy
    if required:
        return _required(required, log)
    if check:
        line, _, value = _shown(check.group(2), log)
        text = f"{check.group(1)} {value} fails the test {check.group(3).strip()}"
        return line, text, _REMEDIES.get(check.group(1), "log what the rules want")
    if crashed:
        line, key, value = _shown(crashed.group(3), log)
        remedy = _REMEDIES.get(key, "log a value of the type that the rules want")
        return line, f"{key} {value} is of a type that the checker cannot test", remedy
    if message.startswith("Failed checks for eval_accuracy"):
        if log.reached is None:  # our own rules report it, and decide whether this run may miss the target
            return None
        text = f"no eval_accuracy is at {rules.TARGET_ACCURACY} or above, and below 1"
        return None, text, "of five runs one may miss the target; otherwise run again with a new seed"
    if "initialized_tensors" in message:
        return _tensors(message, log)
    return None, _short(message), "see the rule of the checker"


def _required(required: re.Match[str], log: ResultLog) -> Sentence:
    keys = re.findall(r"'(.*?)'", required.group(2)) or [required.group(2)]
    count = int(required.group(3) or 0)
    key = " or ".join(sorted(keys))
    if count == 0:
        once = " once" if required.group(1) == "EXACTLY_ONE" else ""
        return None, f"{key} is not logged", f"log {key}{once}"
    events = log.by_key.get(keys[0], ())
    line = events[1].line if len(events) > 1 else None
    if "with different values" in required.group(4):
        values = _short(", ".join(dict.fromkeys(json.dumps(event.value) for event in events)))
        return line, f"{key} is logged {count} times with different values ({values})", "log it once"
    return line, f"{key} is logged {count} times {_HARMLESS}", "log it once, on rank 0 only"


def _tensors(message: str, log: ResultLog) -> Sentence:
    expected = set(re.findall(r'"(\w+)"', message.split("current context", 1)[0]))
    events = log.by_key.get("weights_initialization", ())
    tensors = [(event.line, str(event.metadata.get("tensor"))) for event in events]
    logged = {name for _, name in tensors}
    missing, unknown = sorted(expected - logged), sorted(logged - expected)
    lists = (("missing", missing), ("unknown", unknown))
    parts = [f"{len(names)} {what} ({_short(', '.join(names), 80)})" for what, names in lists if names]
    twice = len(tensors) - len(logged)
    parts += [f"{twice} logged twice"] if twice else []
    text = f"weights_initialization does not name the {len(expected)} tensors of the reference: "
    remedy = "log a weights_initialization for each of the tensors, once, by the names of the reference"
    line = next((line for line, name in tensors if name in unknown), None)
    return line, text + "; ".join(parts), remedy


def _shown(text: str, log: ResultLog) -> tuple[int | None, str, str]:
    """Return line, key and value of the event that the checker shows as text."""
    unknown = None, "a record", "?"
    try:
        fields, _ = json.JSONDecoder().raw_decode(text.strip()[len(TOKEN) :].strip())
        record = fields["key"], fields["value"], fields["metadata"], int(fields["time_ms"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return unknown
    alike = (e for e in log.events if (e.key, e.value, e.metadata, e.time_ms) == record)
    return next(((e.line, e.key, _short(json.dumps(e.value), 60)) for e in alike), unknown)


def _short(text: str, width: int = 160) -> str:
    return excerpt(" ".join(text.split()), width)


def reasons_of_description(text: str) -> list[str]:
    """Return the reasons in a line of the system description checker, which prints them as a Python list."""
    try:
        reasons = ast.literal_eval(text[text.index("[") :])
    except (ValueError, SyntaxError):
        return [text]
    return [str(reason) for reason in reasons]
