"""Turn the messages of the official compliance checker into findings, with the line of the log and a remedy:
``explain``. ``_TABLE`` has the messages."""

import json
import re
from collections.abc import Iterator, Sequence

from rn50.benchmark import rules
from rn50.errors import excerpt
from rn50.results.parse import TOKEN, ResultLog
from rn50.results.validity import log_rules
from rn50.results.validity.compliance import CRASHED, CheckerVerdict
from rn50.results.validity.findings import ERROR, WARNING, Finding

CHECKER = "compliance checker"
"""Beginning of the field ``rule`` of the findings made here; the rulesets follow."""
_HARMLESS = "with one value, though once is right"
_OTHER_TARGET = "the run has a target of its own, so the official check of the accuracy does not apply"
"""Ends of sentences that are only warnings, even if the checker refuses the log for another reason."""
_REMEDIES = {
    **{key: remedy for key, (_, remedy) in log_rules.ALLOWED.items()},
    "init_start": "log init_start before init_stop and run_start",
    "init_stop": "initialise in less than 30 minutes, and log submission_division before init_stop",
    "run_start": "log run_start after init_stop",
    "run_stop": "log run_stop last, with a status in its metadata",
    "eval_accuracy": "log every evaluation with its epoch_num in the metadata, as a fraction below 1",
}
"""Key whose record the checker refuses -> remedy."""


Explanation = tuple[int | None, str, str]
"""Line of the log or None, message and remedy of a finding."""
Facts = tuple[int | None, dict[str, str]]
"""Line of the log or None, and the values of the placeholders of a sentence."""
_UNREADABLE = r"Log lines had parsing errors\."
# Required EXACTLY_ONE occurrence of 'seed' but found 2 with different values: [1, 2]
_REPEATED = r"Required \S+ occurrence of (?P<keys>.*?) but found (?P<count>[1-9]\d*)"
# Required AT_LEAST_ONE occurrence of 'block_start' or 'epoch_start'
_MISSING = r"occurrence of (?P<keys>.*?)(?: but found 0|$)"
# CHECK for 'eval_accuracy' failed in line 12:
# :::MLLOG {"key": "eval_accuracy", ...}
# failed test:  v['metadata'] ...
# current context[s]=...
_REFUSED = (
    r"CHECK for '(?P<checked>.*?)' failed in line \d+:\n(?P<record>.*?)\n"
    r"failed test:\s*(?P<test>.*?)\s*\ncurrent context"
)
# Failed executing CHECK code:, the code, and "triggered by line:" before the record; or
# Failed executing code ... code triggered by line : before the record.
_UNTESTED = r"Failed executing (?:CHECK code:\n.*?\n|code .*? )triggered by line ?:\n(?P<record>.*)"
_MISSED = "Failed checks for eval_accuracy"
_TABLE = {
    _UNREADABLE: ("some records cannot be read by the checker", "log through mlperf_logging.mllog"),
    CRASHED: ("the checker crashed: {said}", "fix the records it could not take; nothing was checked"),
    f"{_REPEATED}.*with different values": (
        "{key} is logged {count} times with different values ({values})",
        "log it once",
    ),
    _REPEATED: (f"{{key}} is logged {{count}} times {_HARMLESS}", "log it once, on rank 0 only"),
    f"Required EXACTLY_ONE {_MISSING}": ("{key} is not logged", "log {key} once"),
    rf"Required \S+ {_MISSING}": ("{key} is not logged", "log {key}"),
    _REFUSED: ("{checked} {value} fails the test {test}", "log what the rules want"),
    _UNTESTED: (
        "{key} {value} is of a type that the checker cannot test",
        "log a value of the type that the rules want",
    ),
    _MISSED: (
        f"no eval_accuracy is at {rules.TARGET_ACCURACY} or above, and below 1",
        f"{rules.ONE_MAY_MISS}; if there are more, run again",
    ),
    "(?P<tensors>.*initialized_tensors.*)": (
        "weights_initialization does not name the {number} tensors of the reference: {differences}",
        "log a weights_initialization for each of the tensors, once, by the names of the reference",
    ),
    "": ("{said}", "see the rule of the checker"),  # every other message
}
"""Pattern for a message of the checker -> sentence and remedy. Placeholders stand for the message itself
({said}), for groups of the pattern, and for the facts of ``_keys``, ``_record`` or ``_tensors``. The first
pattern that matches counts."""


def explain(verdicts: Sequence[CheckerVerdict], log: ResultLog) -> Iterator[Finding]:
    """Yield the findings on one log, from the checker's verdicts under each ruleset. A fault that is found
    under several rulesets is one finding."""
    rulesets_of: dict[tuple[str, Explanation], list[str]] = {}  # by severity and explanation
    for verdict in verdicts:
        explanations = list(filter(None, (_explanation(message, log) for message in verdict.messages)))
        # A refusal has to have a reason: one of the checker, of our parser, or the missed target.
        if not verdict.ok and not explanations and not log.findings and log.reached:
            text = "the checker refuses the log and does not say why"
            explanations.append((None, text, "run the checker by hand"))
        for line, text, remedy in explanations:
            severity = WARNING if verdict.ok or text.endswith((_HARMLESS, _OTHER_TARGET)) else ERROR
            rulesets_of.setdefault((severity, (line, text, remedy)), []).append(verdict.ruleset)
    for (severity, (line, message, remedy)), rulesets in rulesets_of.items():
        rule = f"{CHECKER} {', '.join(dict.fromkeys(rulesets))}"
        yield Finding(severity, log.path, line, rule, message, remedy)


def _explanation(message: str, log: ResultLog) -> Explanation | None:
    """Return the explanation of a message of the checker; None if another finding has its fault."""
    # Pattern for a message -> True if another finding has its fault.
    reported_elsewhere = {
        r"Found parsing errors:|:::MLLOG |\^\^ ": True,  # details, which _UNREADABLE sums up
        _UNREADABLE: any("not an MLPerf record" in finding for finding in log.findings),
        _MISSED: log.reached is None,  # our rules decide whether this run may miss the target
    }
    if any(re.match(pattern, message) and is_reported for pattern, is_reported in reported_elsewhere.items()):
        return None
    if re.match(_MISSED, message) and log.target != rules.TARGET_ACCURACY:
        return None, _OTHER_TARGET, "a result of the benchmark has no TARGET of its own"
    match = next(filter(None, (re.match(pattern, message, re.DOTALL) for pattern in _TABLE)))
    sentence, remedy = _TABLE[match.re.pattern]
    line = None
    facts = {"said": _short(message.removeprefix(CRASHED)), **match.groupdict()}
    # The group of the pattern tells which of the functions below finds further facts, and the line.
    for group, read in {"keys": _keys, "record": _record, "tensors": _tensors}.items():
        if group in facts:
            line, more = read(facts[group], log)
            facts |= more
    if "record" in facts:
        # A remedy for the key comes before that of the table: the key of the check, else that of the record.
        remedy = _REMEDIES.get(facts.get("checked", facts["key"]), remedy)
    return line, sentence.format(**facts), remedy.format(**facts)


def _keys(text: str, log: ResultLog) -> Facts:
    """Return the facts on the keys that the checker quotes in ``text``: the keys, and the logged values of
    the first key. The line is that of the second record of this key."""
    keys = re.findall(r"'(.*?)'", text) or [text]
    events = log.by_key.get(keys[0], ())
    values = _short(", ".join(dict.fromkeys(json.dumps(event.value) for event in events)))
    line = events[1].line if len(events) > 1 else None
    return line, {"key": " or ".join(sorted(keys)), "values": values}


def _record(text: str, log: ResultLog) -> Facts:
    """Return the facts on the record that the checker shows in ``text``: its key and value."""
    unknown = None, {"key": "a record", "value": "?"}
    try:
        fields, _ = json.JSONDecoder().raw_decode(text.strip()[len(TOKEN) :].strip())
        record = fields["key"], fields["value"], fields["metadata"], int(fields["time_ms"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return unknown
    for event in log.events:
        if (event.key, event.value, event.metadata, event.time_ms) == record:
            return event.line, {"key": event.key, "value": _short(json.dumps(event.value), 60)}
    return unknown


def _tensors(text: str, log: ResultLog) -> Facts:
    """Return the facts on the tensors of the reference, which the checker lists in ``text``: their number,
    and how the logged tensors differ from them. The line is that of the first unknown tensor."""
    expected = set(re.findall(r'"(\w+)"', text.split("current context", 1)[0]))
    events = log.by_key.get("weights_initialization", ())
    tensors = [(event.line, str(event.metadata.get("tensor"))) for event in events]
    logged = {name for _, name in tensors}
    missing, unknown = sorted(expected - logged), sorted(logged - expected)
    lists = (("missing", missing), ("unknown", unknown))
    parts = [f"{len(names)} {what} ({_short(', '.join(names), 80)})" for what, names in lists if names]
    twice = len(tensors) - len(logged)
    parts += [f"{twice} logged twice"] if twice else []
    line = next((line for line, name in tensors if name in unknown), None)
    return line, {"number": str(len(expected)), "differences": "; ".join(parts)}


def _short(text: str, width: int = 160) -> str:
    """Return a text on one line, cut to ``width`` characters."""
    return excerpt(" ".join(text.split()), width)
