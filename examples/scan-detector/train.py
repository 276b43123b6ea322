#!/usr/bin/env python3
"""Trains a decision tree on rows with labels, and writes a model that lowroad reads.

    lowroad features pcap capture.pcap --schema tree.v1 --labels labels.csv -o rows.csv
    python3 train.py rows.csv --drop scan -o model

Reads CSV files of one schema and writes model/trees.json and model/model.toml. Rows without a label are left
out. Columns that say which flow a row is about are no inputs, and neither are ports: they say more of one
network than of the next. The tree is a classification tree by Gini impurity; classes weigh the same however
many rows each has. Needs Python 3.9 and nothing else. For forests and boosted trees, train with scikit-learn,
XGBoost or LightGBM; python/lowroad/trees.py writes what scikit-learn has fitted.
"""

import argparse
import collections
import csv
import json
import os
import sys

IDENTITY = {"flow_id", "end_reason", "src_ip", "dst_ip", "first_seen", "last_seen", "src_port", "dst_port"}
LABEL = "label"


def main():
    arguments = parse()
    names, rows = read(arguments.rows)
    labels = sorted({label for _, label in rows})
    unknown = set(arguments.drop) - set(labels)
    if unknown:
        sys.exit(f"no row has the label {min(unknown)}; there are {', '.join(labels)}")
    if len(labels) < 2:
        sys.exit(f"the rows have the label {labels[0]} only: nothing can be told apart")
    tree = grow(rows, labels, arguments.depth)
    os.makedirs(arguments.out, exist_ok=True)
    write_trees(tree, names, labels, os.path.join(arguments.out, "trees.json"))
    write_manifest(arguments, names, labels, os.path.join(arguments.out, "model.toml"))
    counts = collections.Counter()
    for (_, label), weight in rows.items():
        counts[label] += weight
    print(f"{sum(counts.values())} rows, {', '.join(f'{counts[label]} {label}' for label in labels)};"
          f" {len(tree)} nodes")


def parse():
    parser = argparse.ArgumentParser(description="Train a decision tree on rows with labels.")
    parser.add_argument("rows", nargs="+", help="CSV files that lowroad wrote with --labels")
    parser.add_argument("-o", "--out", required=True, help="folder for trees.json and model.toml")
    parser.add_argument("--schema", default="tree.v1", help="schema of the rows (default: tree.v1)")
    parser.add_argument("--name", default="scan-detector", help="name of the model")
    parser.add_argument("--drop", action="append", default=[], metavar="LABEL",
                        help="have the kernel drop the packets of flows of this class")
    parser.add_argument("--depth", type=int, default=8, choices=range(1, 17), metavar="N",
                        help="splits in a row, 1 to 16 (default: 8)")
    parser.add_argument("--first", type=int, default=1, metavar="N",
                        help="first packet of a flow after which the kernel asks (default: 1)")
    parser.add_argument("--last", type=int, default=8, metavar="N",
                        help="last packet of a flow after which the kernel asks (default: 8)")
    return parser.parse_args()


# Rows.


def read(paths):
    """The names of the inputs, and how many rows have the same values and label. An empty value is 0."""
    names, rows = None, collections.Counter()
    for path in paths:
        with open(path, newline="", encoding="utf-8") as file:
            lines = csv.DictReader(file)
            if LABEL not in (lines.fieldnames or []):
                sys.exit(f"{path}: has no column {LABEL}: write the rows with --labels")
            own = [name for name in lines.fieldnames if name not in IDENTITY and name != LABEL]
            if names not in (None, own):
                sys.exit(f"{path}: has other columns than the files before it")
            names = own
            for line in lines:
                if line[LABEL]:
                    rows[number(line, names, path), line[LABEL]] += 1
    if not rows:
        sys.exit("no row has a label")
    return names, rows


def number(line, names, path):
    try:
        return tuple(float(line[name] or 0) for name in names)
    except ValueError as error:
        sys.exit(f"{path}: {error}: inputs are numbers; leave other columns out with --without")


# The tree. Its nodes are ("leaf", shares) or ("split", column, threshold, left, right).


def grow(rows, labels, depth):
    totals = collections.Counter()
    for (_, label), count in rows.items():
        totals[label] += count
    weighted = [
        (values, labels.index(label), count / totals[label])
        for (values, label), count in sorted(rows.items())
    ]
    nodes = []
    add(nodes, weighted, len(labels), depth)
    return nodes


def add(nodes, rows, classes, depth):
    """Appends the tree of these rows; parents come before their children."""
    at = len(nodes)
    nodes.append(("leaf", shares(rows, classes)))
    split = best_split(rows, classes) if depth > 0 else None
    if split is None:
        return at
    column, threshold = split
    left = add(nodes, [row for row in rows if row[0][column] <= threshold], classes, depth - 1)
    right = add(nodes, [row for row in rows if row[0][column] > threshold], classes, depth - 1)
    nodes[at] = ("split", column, threshold, left, right)
    return at


def shares(rows, classes):
    weights = sums(rows, classes)
    return [weight / sum(weights) for weight in weights]


def sums(rows, classes):
    weights = [0.0] * classes
    for _, label, weight in rows:
        weights[label] += weight
    return weights


def best_split(rows, classes):
    """The column and the threshold that leave the least impurity; none where nothing lessens it."""
    total = sums(rows, classes)
    best, found = impurity(total) - 1e-9, None
    for column in range(len(rows[0][0])):
        ordered = sorted(rows, key=lambda row: row[0][column])
        left, right = [0.0] * classes, list(total)
        for (values, label, weight), (following, _, _) in zip(ordered, ordered[1:]):
            left[label] += weight
            right[label] -= weight
            low, high = values[column], following[column]
            threshold = low + (high - low) / 2
            # Beside large numbers the middle may be rounded to the upper one.
            if low == high or threshold >= high:
                continue
            remaining = impurity(left) + impurity(right)
            if remaining < best:
                best, found = remaining, (column, threshold)
    return found


def impurity(weights):
    """Gini's, times the weight of the rows."""
    total = sum(weights)
    return total - sum(weight * weight for weight in weights) / total if total > 0 else 0.0


# The files.


def write_trees(nodes, names, labels, path):
    binary = len(labels) == 2
    tree = {name: [] for name in ("left", "right", "feature", "threshold", "value")}
    for node in nodes:
        if node[0] == "leaf":
            # Of two classes, the share of the second is enough.
            leaf = node[1][1:] if binary else node[1]
            entry = (-1, -1, -2, "-2.0", [repr(share) for share in leaf])
        else:
            _, column, threshold, left, right = node
            entry = (left, right, column, repr(threshold), [])
        for name, value in zip(("left", "right", "feature", "threshold", "value"), entry):
            tree[name].append(value)
    outputs = 1 if binary else len(labels)
    with open(path, "w", encoding="utf-8") as out:
        json.dump({
            "format": "lowroad-trees-1",
            "model": "train.py",
            "columns": names,
            "inputs": len(names),
            "labels": labels,
            "compare": "double",
            "link": "mean",
            "base": ["0.0"] * outputs,
            "trees": [{"output": 0, "missing_left": None, **tree}],
        }, out)


def write_manifest(arguments, names, labels, path):
    schema = arguments.schema
    # What is null in rows was 0 in the training. In tree.v1 nothing is null.
    entry = '    "{}",\n' if schema == "tree.v1" else '    {{ id = "{}", null = 0 }},\n'
    columns = "".join(entry.format(f"{schema}/{name}") for name in names)
    classes = "".join(
        "    {{ name = {}{} }},\n".format(json.dumps(label), ', action = "drop"' if label in arguments.drop else "")
        for label in labels
    )
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"name = {json.dumps(arguments.name)}\n")
        out.write(f'trees = "trees.json"\nschema = "{schema}"\n')
        out.write(f"packets = {{ first = {arguments.first}, last = {arguments.last} }}\n")
        out.write(f"columns = [\n{columns}]\nclasses = [\n{classes}]\n")


if __name__ == "__main__":
    main()
