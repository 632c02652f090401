"""What PaddlePaddle's profiler told is counted once."""

import pytest

pytest.importorskip("paddle")

from implementations.paddle import measure
from rn50.run.loop import Rank
from rn50.speed import measured_steps
from rn50.speed.measured_steps import Operator
from tests.conftest import with_changes


def test_the_operators_of_steps(tiny_config, tmp_path):
    rank = Rank(with_changes(tiny_config, run={"framework": "paddle"}))
    rank.warm_up(5)
    result, told = measured_steps.profile(rank, rank.synthetic(), 3, tmp_path / "trace.json")
    calls = {each.name: each.calls for each in told}
    assert (calls["conv2d"], calls["batch_norm"], calls["lars_momentum"]) == (3 * 53, 3 * 53, 3 * 161)
    assert 0 < sum(each.seconds for each in told) <= result.seconds
    rank.close()


def test_an_operator_within_another_one_is_counted_with_it():
    def event(name, ts, dur, kind="Operator"):
        return {"name": f"{name}[{dur} us]", "cat": kind, "ts": ts, "dur": dur}

    events = [
        event("add dygraph", 100, 20.9), event("add compute", 101, 15, "OperatorInner"),
        event("add", 105, 15.4), event("Conv2dGradNodeFinal", 120, 300.5), {"name": "process_name"},
        event("add dygraph", 421, 10)]
    assert measure.operators(events, measure.OPERATORS) == [
        Operator("add", 2, pytest.approx(30.9e-6)),
        Operator("Conv2dGradNodeFinal", 1, pytest.approx(300.5e-6))]
