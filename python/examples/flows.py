"""From a capture to a picture: who talks how much, and for how long.

Run it as it is, ``python flows.py CAPTURE PICTURE.png``, or cell by cell in an editor that knows ``# %%``.
"""

# %% Read the capture: a row for each flow
import sys

import matplotlib.pyplot as plt
import polars as pl

from lowroad import features

capture, picture = sys.argv[1:] if len(sys.argv) == 3 else ("capture.pcap", "flows.png")
flows = features.read_pcap(capture)
frame = flows.to_polars()
print(frame.select("src_ip", "dst_ip", "dst_port", "packets", "bytes", "duration_ns").head())
print(flows.counters())

# %% What a column means
for column in features.schema("flow.v1")[:5]:
    print(f"{column.name} [{column.unit or '-'}]: {column.definition}")

# %% Bytes by server port
ports = (
    frame.group_by("protocol", "dst_port")
    .agg(pl.col("bytes").sum(), pl.len().alias("flows"))
    .sort("bytes", descending=True)
    .head(10)
)
print(ports)

# %% Every flow: how long it lasted, and what it carried
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5))
for protocol, name in [(6, "TCP"), (17, "UDP")]:
    of = frame.filter(pl.col("protocol") == protocol)
    left.scatter(of["duration_ns"] / 1e9 + 1e-6, of["bytes"], s=6, alpha=0.5, label=name)
left.set(xscale="log", yscale="log", xlabel="duration, s", ylabel="bytes", title="Flows")
left.legend()
names = [f"{port}/{protocol}" for protocol, port in ports.select("protocol", "dst_port").rows()]
right.barh(names, ports["bytes"])
right.set(xlabel="bytes", ylabel="server port/protocol", title="Bytes by server port")
right.invert_yaxis()
figure.tight_layout()
figure.savefig(picture, dpi=150)
