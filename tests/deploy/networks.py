"""Weights without training: random ones, and random features with a classifier that knows the validation set
by heart."""

import numpy as np

from rn50.benchmark import network
from rn50.weights.weights_file import Weights

FACTS = {"classes": "10", "width": "0.125", "image_size": "32", "eval_resize": "36"}


def random_weights(seed=0, **facts):
    """Weights whose batch norms are none of the identity."""
    random, arrays, said = np.random.RandomState(seed), {}, {**FACTS, **facts}
    for name, shape in network.shapes(int(said["classes"]), float(said["width"])).items():
        if name.endswith(("gamma", "running_var")):
            arrays[name] = random.uniform(0.5, 1.5, shape)
        elif name.endswith("_weight"):
            arrays[name] = random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        else:
            arrays[name] = random.standard_normal(shape) * 0.1
    return Weights({name: array.astype(np.float32) for name, array in arrays.items()}, said)


def fitted_weights(config):
    """Weights that know the validation set: the classifier is the ridge regression of its labels on random
    features. It knows 15 noisy copies of each image too, because rounding to int8 adds noise."""
    from rn50.deploy import export, model_evaluation, model_file  # only here: they need ONNX

    weights = random_weights()
    features, labels = [], []
    identity = {
        "fc1_weight": np.eye(network.features(weights.width), dtype=np.float32),
        "fc1_bias": np.zeros(network.features(weights.width), np.float32)}
    body = Weights(
        {**weights.arrays, **identity}, {**weights.facts, "classes": str(network.features(weights.width))})
    session, random = model_file.session(export.convert(body, "features"), 1), np.random.RandomState(0)
    for batch in model_evaluation.batches(config, "val").epoch():
        images = batch.images[: batch.samples]
        for noise in (0, *15 * [0.2]):  # of images with a deviation of about 1
            noisy = (images + noise * random.standard_normal(images.shape)).astype(np.float32)
            features.append(session.run(None, {"images": noisy})[0].astype(np.float64))
            labels.append(batch.labels[: batch.samples].copy())
    x, y = np.concatenate(features), np.eye(10)[np.concatenate(labels)] - 0.1
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-6
    normal = (x - mean) / deviation
    solved = (
        np.linalg.solve(normal.T @ normal + 100 * np.eye(normal.shape[1]), normal.T @ y) / deviation[:, None])
    fitted = {"fc1_weight": solved.T.astype(np.float32), "fc1_bias": (-mean @ solved).astype(np.float32)}
    return Weights({**weights.arrays, **fitted}, weights.facts)
