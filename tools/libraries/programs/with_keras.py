"""Keras 3 on its torch backend: layers, training by fit, metrics, draws, files, operations, and a loop of torch's own."""

from __future__ import annotations

import tempfile

import fed
import keras
import numpy as np
import torch
from fed import case, numbers
from keras import layers, ops


def filled(model):
    """Its weights by NumPy."""
    g = np.random.default_rng(1)
    model.set_weights([(g.standard_normal(w.shape) * 0.1).astype(w.dtype) for w in model.get_weights()])
    return model


@case("fit, evaluate, predict, and files")
def fit():
    g = np.random.default_rng(0)
    model = filled(keras.Sequential([layers.Input((5,)), layers.Dense(8, activation="relu"), layers.Dense(3, activation="softmax")]))
    model.compile(keras.optimizers.Adam(1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = g.standard_normal((64, 5)).astype("float32")
    y = (x[:, 0] > 0).astype("int64")
    history = model.fit(x, y, epochs=3, batch_size=16, verbose=0, shuffle=False, validation_split=0.25).history
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/m.keras")
        again = keras.models.load_model(f"{folder}/m.keras")
        said = again.predict(x, verbose=0)
    return [history, model.evaluate(x, y, verbose=0), said[:4]]


@case("images")
def images():
    g = np.random.default_rng(0)
    x, y = g.standard_normal((8, 12, 12, 3)).astype("float32"), np.arange(8) % 4
    given = layers.Input((12, 12, 3))
    h = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(6, 3, padding="same")(given)))
    h = layers.GroupNormalization(2)(layers.SeparableConv2D(8, 3)(layers.MaxPooling2D()(h)))
    h = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(layers.DepthwiseConv2D(3, padding="same", activation="gelu")(h))
    h = layers.GlobalAveragePooling2D()(layers.UpSampling2D(2, interpolation="bilinear")(layers.AveragePooling2D(2)(h)))
    model = filled(keras.Model(given, layers.Dense(4)(h)))
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return [model.fit(x, y, epochs=3, batch_size=4, verbose=0, shuffle=False).history, model.predict(x, verbose=0)]


@case("sequences and attention")
def sequences():
    g = np.random.default_rng(0)
    x, y = g.integers(0, 20, (8, 7)), g.integers(0, 2, (8, 1))
    given = layers.Input((7,), dtype="int32")
    h = layers.Embedding(20, 8, mask_zero=True)(given)
    a, b = layers.LSTM(6, return_sequences=True)(h), layers.Bidirectional(layers.GRU(5, return_sequences=True))(h)
    c = layers.LayerNormalization()(layers.MultiHeadAttention(2, 4)(h, h))
    model = filled(keras.Model(given, layers.Dense(1, activation="sigmoid")(layers.SimpleRNN(4)(layers.Concatenate()([a, b, c])))))
    model.compile(keras.optimizers.AdamW(1e-2), "binary_crossentropy", metrics=[keras.metrics.AUC(), "binary_accuracy"])
    return [model.fit(x, y, epochs=3, batch_size=4, verbose=0, shuffle=False).history, model.predict(x, verbose=0)]


@case("twelve optimizers")
def optimizers():
    out = []
    for name in "SGD RMSprop Adam AdamW Adadelta Adagrad Adamax Adafactor Nadam Ftrl Lion Lamb".split():
        model = filled(keras.Sequential([layers.Input((5,)), layers.Dense(8, activation="tanh"), layers.Dense(1)]))
        model.compile(getattr(keras.optimizers, name)(1e-2), "mse")
        x = np.linspace(-1, 1, 80).reshape(16, 5).astype("float32")
        out.append(model.fit(x, x.sum(1), epochs=2, batch_size=8, verbose=0, shuffle=False).history["loss"])
    return out


@case("operations")
def operations():
    x = ops.convert_to_tensor(np.random.default_rng(0).standard_normal((3, 4, 5)).astype("float32"))
    return [ops.einsum("ijk,ilk->ijl", x, x), ops.logsumexp(x, 1), ops.top_k(x, 2)[0], ops.scan(lambda c, t: (c + t, c * t), x[0], x)[1],
            ops.vectorized_map(lambda t: ops.sum(t ** 2), x), ops.image.resize(x[None], (6, 8), interpolation="bicubic")[0],
            ops.quantile(x, 0.3, axis=1), ops.scatter_update(x, [[0, 1, 2]], [9.0]), ops.rfft(x)[0], ops.stft(x[0], 4, 2, 4)[0], ops.linalg.svd(x)[1],
            ops.conv(x, ops.ones((2, 5, 3)), 1, "same"), ops.erfinv(x * 0.1), ops.segment_sum(x, ops.convert_to_tensor([0, 0, 1])),
            ops.associative_scan(lambda a, b: a + b, x), ops.correlate(x[0, 0], x[0, 1])]


@case("a loop of torch's own")
def loop():
    model = filled(keras.Sequential([layers.Input((5,)), layers.Dense(8, activation="silu"), layers.Dense(1)]))
    x, y = numbers(16, 5), numbers(16, 1, seed=1)
    return fed.steps(model, lambda: ((model(x) - y) ** 2).mean(), optimizer=torch.optim.Adam(model.parameters(), 1e-2))


@case("initial values and dropout by the seed")
def draws():
    with keras.device("cpu"):  # a GPU's generator gives other numbers than the CPU's
        keras.utils.set_random_seed(7)
        model = keras.Sequential([layers.Input((4,)), layers.Dense(6), layers.Dropout(0.5), layers.Dense(2)])
        model.compile("sgd", "mse")
        history = model.fit(np.ones((8, 4), "float32"), np.zeros((8, 2)), epochs=3, verbose=0).history
        return [model.get_weights(), history, keras.random.normal((3,), seed=1), keras.random.randint((3,), 0, 9, seed=3)]


fed.main()
