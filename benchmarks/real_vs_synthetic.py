"""Compare training on real data with the same steps on synthetic data held in memory, by turns in one process.

    set -a; . configs/config_DEMO_CPU.sh; set +a; python benchmarks/real_vs_synthetic.py [--steps 60] [--rounds 5] [--json]

The environment describes the configuration, as for a run; its data set must exist. Each round times ``--steps`` steps with
RecordIO, DALI's decoding and augmentation, and the training step; then as many on one batch held in memory. The figure is the
median of the rounds' ratios: 1 means that the input pipeline costs nothing.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from rn50.launch import job
from rn50.settings import config as configuration


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    config = configuration.from_environment()
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, benchmark_steps=args.steps))
    os.environ.update(job.rank_environment(config, os.environ))

    from implementations.mxnet import input_pipeline, mx, train

    rank = train.create(config)
    rank.warm_up(1)
    rank.open_data()
    synthetic = input_pipeline.SyntheticBatches(config, 1, rank.context, rank.layout, rank.precision)
    real = rank.training_data
    rates = {"real": [], "synthetic": []}
    for round_ in range(-1, args.rounds):  # the first round warms both sides up
        for name, data in (("real", real), ("synthetic", synthetic)):
            rank.training_data = data
            begin = time.perf_counter()
            samples = rank.train_epoch(1, lambda samples, loss: None).samples
            mx.nd.waitall()
            if round_ >= 0:
                rates[name].append(samples / (time.perf_counter() - begin))
    ratios = [left / right for left, right in zip(rates["real"], rates["synthetic"])]
    report = {
        "real_images_per_second": statistics.median(rates["real"]),
        "synthetic_images_per_second": statistics.median(rates["synthetic"]),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "precision": rank.precision,
        "omp_num_threads": os.environ["OMP_NUM_THREADS"],
    }
    if args.json:
        print(json.dumps(report, indent=1))
        return
    print(f"real {report['real_images_per_second']:.0f} img/s, synthetic {report['synthetic_images_per_second']:.0f} img/s, "
          f"ratio {report['ratio']:.3f} (median of {args.rounds} rounds: {', '.join(f'{ratio:.3f}' for ratio in ratios)}); "
          f"{rank.precision}, OMP_NUM_THREADS={report['omp_num_threads']}")


if __name__ == "__main__":
    main()
