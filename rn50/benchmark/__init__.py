"""The benchmark as MLPerf defines it: rules, learning-rate schedule, optimizers, network."""
