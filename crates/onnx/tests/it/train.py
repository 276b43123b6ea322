"""Trains models with scikit-learn on rows, writes them in ONNX, and what scikit-learn says of the same rows.

    python train.py ROWS.parquet FOLDER SIZE

For each model: FOLDER/NAME.toml, NAME.onnx, and NAME.json with the probabilities of every row's classes.
"""

import json
import os
import sys
import warnings

import numpy
import pandas
import pyarrow.parquet
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn import compose, ensemble, impute, linear_model, neural_network, pipeline, preprocessing

warnings.filterwarnings("ignore")
NUMBERS = ("int", "uint", "double", "bool")
SINGLE = numpy.float32


def main(rows, folder, size):
    table = pyarrow.parquet.read_table(rows)
    schema = table.schema.metadata[b"lowroad.schema"].decode()
    names = [f.name for f in table.schema if str(f.type).startswith(NUMBERS) and f.name != "flow_id"]
    columns = [table[name].cast("float64").to_numpy(zero_copy_only=False) for name in names]
    x = numpy.column_stack(columns).astype(SINGLE)
    os.makedirs(folder, exist_ok=True)
    for name, classes, train, null in models(size):
        inputs = x if null is None else numpy.nan_to_num(x, nan=null)
        y = labels(inputs, classes)
        model, graph = train(inputs, y, names)
        path = os.path.join(folder, name)
        with open(path + ".onnx", "wb") as out:
            out.write(graph.SerializeToString())
        manifest(path, name, schema, names, [str(label) for label in model.classes_], null)
        with open(path + ".json", "w") as out:
            shares = model.predict_proba(pandas.DataFrame(inputs, columns=names))
            json.dump([[round(float(share), 7) for share in row] for row in shares], out)


def models(size):
    """Names, numbers of classes, how to train, and what stands for null."""
    small = size == "small"
    trees = dict(n_estimators=3 if small else 20, max_depth=3 if small else 8, random_state=1)
    layers = (6,) if small else (64, 32)
    scaled = [impute.SimpleImputer(), preprocessing.StandardScaler()]
    for classes in (2, 3):
        forest = ensemble.RandomForestClassifier(**trees)
        yield f"forest-{classes}", classes, by_skl2onnx(forest), -1
        boost = ensemble.GradientBoostingClassifier(learning_rate=0.5, **trees)
        boost = pipeline.make_pipeline(impute.SimpleImputer(), boost)
        yield f"gradient-{classes}", classes, by_skl2onnx(boost), None
        net = neural_network.MLPClassifier(layers, max_iter=300, random_state=1)
        yield f"network-{classes}", classes, by_skl2onnx(pipeline.make_pipeline(*scaled, net)), None
        yield f"plain-{classes}", classes, by_hand(layers), -1
        linear = linear_model.LogisticRegression(max_iter=1000)
        yield f"linear-{classes}", classes, by_skl2onnx(pipeline.make_pipeline(*scaled, linear)), None
    yield "columns-2", 2, by_columns, -1


def by_skl2onnx(model):
    def train(x, y, names):
        named = numpy.array(["benign", "scan", "flood"])[y]
        model.fit(x, named)
        return model, to_onnx(model, x[:1])

    return train


def by_columns(x, y, names):
    """An input for each column."""
    scale = compose.ColumnTransformer([("all", preprocessing.MinMaxScaler(), names)])
    model = pipeline.make_pipeline(scale, linear_model.LogisticRegression(max_iter=1000))
    model.fit(pandas.DataFrame(x, columns=names), y)
    types = [(name, FloatTensorType([None, 1])) for name in names]
    return model, to_onnx(model, initial_types=types)


def by_hand(layers):
    """Gemm, Relu, and Softmax, or Sigmoid for the second of two, as networks of other programs are."""

    def train(x, y, names):
        model = neural_network.MLPClassifier(layers, max_iter=300, random_state=1)
        scale = preprocessing.StandardScaler().fit(x)
        model.fit(scale.transform(x), y)
        weights = [w.copy() for w in model.coefs_]
        biases = [b.copy() for b in model.intercepts_]
        # The scaler is a linear map: it goes into the first layer.
        biases[0] -= (scale.mean_ / scale.scale_) @ weights[0]
        weights[0] /= scale.scale_[:, None]
        nodes, tensors, value = [], [], "flows"
        for at, (weight, bias) in enumerate(zip(weights, biases)):
            tensors.append(numpy_helper.from_array(weight.astype(SINGLE), f"w{at}"))
            tensors.append(numpy_helper.from_array(bias.astype(SINGLE), f"b{at}"))
            nodes.append(helper.make_node("Gemm", [value, f"w{at}", f"b{at}"], [f"sum{at}"]))
            last = at + 1 == len(weights)
            link = "Relu" if not last else "Softmax" if weight.shape[1] > 1 else "Sigmoid"
            value = f"layer{at}"
            nodes.append(helper.make_node(link, [f"sum{at}"], [value]))
        graph = helper.make_graph(
            nodes,
            "network",
            [helper.make_tensor_value_info("flows", TensorProto.FLOAT, ["rows", x.shape[1]])],
            [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["rows", weights[-1].shape[1]])],
            tensors,
        )
        opset = [helper.make_opsetid("", 17)]
        return pipeline.Pipeline([("scale", scale), ("net", model)]), helper.make_model(
            graph, opset_imports=opset, ir_version=8
        )

    return train


def labels(x, classes):
    """Something to learn, and some noise."""
    rng = numpy.random.default_rng(1)
    filled = numpy.nan_to_num(x.astype(float), nan=-1)
    weights = rng.normal(size=x.shape[1]) / (filled.std(axis=0) + 1)
    score = filled @ weights + rng.normal(scale=0.3, size=len(x))
    return numpy.searchsorted(numpy.quantile(score, (numpy.arange(1, classes) / classes) ** 0.5), score)


def manifest(path, name, schema, columns, classes, null):
    null = "" if null is None else f", null = {null}"
    with open(path + ".toml", "w") as out:
        out.write(f'name = "{name}"\nonnx = "{name}.onnx"\nschema = "{schema}"\ncolumns = [\n')
        for column in columns:
            out.write(f'    {{ id = "{schema}/{column}"{null} }},\n')
        out.write("]\nclasses = [\n")
        for label in classes:
            out.write(f'    {{ name = "{label}" }},\n')
        out.write("]\n")


main(*sys.argv[1:])
