"""Trains real models on rows, and writes what they say of the same rows.

    python train.py EXPORTER ROWS.parquet FOLDER SIZE

For each model: FOLDER/NAME.toml, the trees, and FOLDER/NAME.json with the classes that it predicts, and
whether each is certain: its own sums are rounded, so that a tie may fall either way.
"""

import importlib.util
import json
import os
import sys
import warnings

import lightgbm
import numpy
import pyarrow.parquet
import xgboost
from sklearn import ensemble, tree

warnings.filterwarnings("ignore")
NUMBERS = ("int", "uint", "double", "bool")


def main(exporter, rows, folder, size):
    table = pyarrow.parquet.read_table(rows)
    schema = table.schema.metadata[b"lowroad.schema"].decode()
    names = [f.name for f in table.schema if str(f.type).startswith(NUMBERS) and f.name != "flow_id"]
    x = numpy.column_stack(
        [table[name].cast("float64").to_numpy(zero_copy_only=False) for name in names]
    )
    columns = [f"{schema}/{name}" for name in names]
    os.makedirs(folder, exist_ok=True)
    for name, classes, model, missing in models(size):
        inputs = x if missing else numpy.nan_to_num(x, nan=-1)
        y = labels(inputs, classes)
        model.fit(inputs, y)
        path = os.path.join(folder, name)
        trees = save(exporter, model, columns, path)
        manifest(path, name, trees, schema, columns, classes, missing)
        shares = numpy.sort(model.predict_proba(inputs), axis=1)
        said = {
            "classes": [int(c) for c in model.predict(inputs)],
            "certain": [int(c) for c in shares[:, -1] - shares[:, -2] > 1e-6],
        }
        with open(path + ".json", "w") as out:
            json.dump(said, out)


def models(size):
    depth = {"small": 3, "large": 8}[size]
    trees = {"small": 4, "large": 20}[size]
    sk = dict(max_depth=depth, random_state=1)
    boost = dict(n_estimators=trees, max_depth=depth, random_state=1, verbosity=0)
    light = dict(n_estimators=trees, max_depth=depth, random_state=1, verbose=-1, min_child_samples=2)
    for classes in (2, 3):
        yield f"tree-{classes}", classes, tree.DecisionTreeClassifier(**sk), True
        yield f"forest-{classes}", classes, ensemble.RandomForestClassifier(trees, **sk), True
        yield f"extra-{classes}", classes, ensemble.ExtraTreesClassifier(trees, **sk), False
        yield f"gradient-{classes}", classes, ensemble.GradientBoostingClassifier(n_estimators=trees, **sk), False
        yield f"histogram-{classes}", classes, ensemble.HistGradientBoostingClassifier(max_iter=trees, **sk), True
        yield f"xgboost-{classes}", classes, xgboost.XGBClassifier(**boost), True
        yield f"lightgbm-{classes}", classes, lightgbm.LGBMClassifier(**light), True
    light["n_estimators"] += 1
    yield "lightgbm-zero", 2, lightgbm.LGBMClassifier(zero_as_missing=True, **light), True
    yield "lightgbm-rf", 2, lightgbm.LGBMClassifier(
        boosting_type="rf", subsample=0.7, subsample_freq=1, **light
    ), True


def labels(x, classes):
    """Something to learn, and some noise."""
    rng = numpy.random.default_rng(1)
    filled = numpy.nan_to_num(x, nan=-1)
    weights = rng.normal(size=x.shape[1]) / (filled.std(axis=0) + 1)
    score = filled @ weights + rng.normal(scale=0.3, size=len(x))
    return numpy.searchsorted(numpy.quantile(score, numpy.arange(1, classes) / classes), score)


def save(exporter, model, columns, path):
    kind = type(model).__name__
    if kind.startswith("XGB"):
        model.get_booster().feature_names = columns
        model.save_model(path + ".trees.json")
        return ".trees.json"
    if kind.startswith("LGBM"):
        model.booster_.save_model(path + ".trees.txt")
        return ".trees.txt"
    spec = importlib.util.spec_from_file_location("trees", exporter)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.export_tree(model, columns, path + ".trees.json")
    return ".trees.json"


def manifest(path, name, trees, schema, columns, classes, missing):
    null = "" if missing else ", null = -1"
    with open(path + ".toml", "w") as out:
        out.write(f'name = "{name}"\ntrees = "{name}{trees}"\nschema = "{schema}"\ncolumns = [\n')
        for column in columns:
            out.write(f'    {{ id = "{column}"{null} }},\n')
        out.write("]\nclasses = [\n")
        for at in range(classes):
            out.write(f'    {{ name = "class{at}" }},\n')
        out.write("]\n")


main(*sys.argv[1:])
