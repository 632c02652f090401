"""``rn50 borrow``: a configuration with the hyperparameters of another run."""
