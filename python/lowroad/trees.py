"""Writes scikit-learn's classifiers of trees as a file that `lowroad features model` reads.

    from lowroad.trees import export_tree
    export_tree(model, columns, "trees.json")

or, where lowroad's package is not installed, a copy of this file: it needs NumPy and scikit-learn's
model, and nothing else. XGBoost and LightGBM need no exporter: give what their ``save_model`` writes as
``.json`` and ``.txt``.

Numbers are written as text: every reader then rounds them as Python did.
"""

import json

__all__ = ["export_tree"]

_FORMAT = "lowroad-trees-1"


def export_tree(model, columns, path):
    """Writes a fitted classifier to ``path``.

    ``model``: DecisionTreeClassifier, RandomForestClassifier, ExtraTreesClassifier,
    GradientBoostingClassifier or HistGradientBoostingClassifier. ``columns``: the names of its inputs in
    the order of the training, as in ``tree.v1/packets`` or ``packets``.
    """
    kinds = {
        "DecisionTreeClassifier": _votes,
        "ExtraTreeClassifier": _votes,
        "RandomForestClassifier": _votes,
        "ExtraTreesClassifier": _votes,
        "GradientBoostingClassifier": _boosted,
        "HistGradientBoostingClassifier": _histogram,
    }
    kind = type(model).__name__
    if kind not in kinds:
        raise TypeError(f"{kind} is not exported; {', '.join(sorted(kinds))} are")
    if getattr(model, "n_outputs_", 1) != 1:
        raise ValueError(f"{kind} predicts several things; one is exported")
    columns = [str(column) for column in columns]
    if len(columns) != model.n_features_in_:
        raise ValueError(f"{len(columns)} columns for {model.n_features_in_} inputs")
    own = getattr(model, "feature_names_in_", None)
    if own is not None and [c.split("/")[-1] for c in columns] != [str(n).split("/")[-1] for n in own]:
        raise ValueError("the columns are not those of the training, in its order")
    file = {
        "format": _FORMAT,
        "model": kind,
        "columns": columns,
        "inputs": len(columns),
        "labels": [str(label) for label in model.classes_],
        **kinds[kind](model),
    }
    with open(path, "w", encoding="utf-8") as out:
        json.dump(file, out)


def _votes(model):
    """Trees whose leaves are shares of classes; their mean is the probability."""
    trees = [tree.tree_ for tree in getattr(model, "estimators_", [model])]
    classes = len(model.classes_)

    def leaf(tree, node):
        shares = tree.value[node][0]
        shares = shares / shares.sum()
        return shares[1:] if classes == 2 else shares

    return {
        "compare": "single",
        "link": "mean",
        "base": _texts([0.0] * _outputs(classes)),
        "trees": [
            _tree(tree, 0, leaf, tree.missing_go_to_left if _takes_missing(model) else None)
            for tree in trees
        ],
    }


def _boosted(model):
    """Trees whose leaves are steps towards the log odds."""
    import numpy

    if model.loss != "log_loss":
        raise ValueError(f"loss={model.loss!r} is not exported; log_loss is")
    outputs = _outputs(len(model.classes_))
    base = model._raw_predict_init(numpy.zeros((2, model.n_features_in_)))
    others = model._raw_predict_init(numpy.ones((2, model.n_features_in_)))
    if not (base == others).all():
        raise ValueError("init is a model of its own, which is not exported; leave it out")
    rate = model.learning_rate
    return {
        "compare": "single",
        "link": _link(outputs),
        "base": _texts(base[0]),
        "trees": [
            _tree(tree.tree_, output, lambda tree, node: [rate * tree.value[node][0][0]])
            for stage in model.estimators_
            for output, tree in enumerate(stage)
        ],
    }


def _histogram(model):
    """The same by histograms; the trees compare in double precision and know missing values."""
    outputs = _outputs(len(model.classes_))
    if model.is_categorical_ is not None and any(model.is_categorical_):
        raise ValueError("categorical splits are not exported; encode categories as numbers")
    trees = []
    for stage in model._predictors:
        for output, predictor in enumerate(stage):
            nodes = predictor.nodes
            is_leaf = [bool(leaf) for leaf in nodes["is_leaf"]]
            trees.append(
                {
                    "output": output,
                    "left": [-1 if leaf else int(n) for leaf, n in zip(is_leaf, nodes["left"])],
                    "right": [-1 if leaf else int(n) for leaf, n in zip(is_leaf, nodes["right"])],
                    "feature": [int(feature) for feature in nodes["feature_idx"]],
                    "threshold": _texts(nodes["num_threshold"]),
                    "missing_left": [bool(left) for left in nodes["missing_go_to_left"]],
                    "value": [
                        _texts([value]) if leaf else []
                        for leaf, value in zip(is_leaf, nodes["value"])
                    ],
                }
            )
    return {
        "compare": "double",
        "link": _link(outputs),
        "base": _texts(model._baseline_prediction.ravel()),
        "trees": trees,
    }


def _takes_missing(model):
    """Whether it predicts rows with missing values; then its trees know where these go."""
    if hasattr(model, "__sklearn_tags__"):
        return model.__sklearn_tags__().input_tags.allow_nan
    return bool(model._get_tags().get("allow_nan"))


def _tree(tree, output, leaf, missing=None):
    left = [int(node) for node in tree.children_left]
    return {
        "output": output,
        "left": left,
        "right": [int(node) for node in tree.children_right],
        "feature": [int(feature) for feature in tree.feature],
        "threshold": _texts(tree.threshold),
        "missing_left": None if missing is None else [bool(goes) for goes in missing],
        "value": [_texts(leaf(tree, node)) if left[node] < 0 else [] for node in range(len(left))],
    }


def _outputs(classes):
    return 1 if classes == 2 else classes


def _link(outputs):
    return "sigmoid" if outputs == 1 else "softmax"


def _texts(numbers):
    return [repr(float(number)) for number in numbers]
